"""HTTP/1.1 server (h11) for a few small requests: bounded in connections, bytes and time, one request for each."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

import h11

from fumehood_server.config.listen import Listen
from fumehood_server.rpc.sockets import ListenFailedError, claimed, private_umask
from fumehood_server.telemetry import get_logger

MAX_CONNECTIONS = 16
"""At a time. One above that is closed at once."""
MAX_HEAD_BYTES = 8 * 1024
"""h11 takes 3 µs for each field, and a field can have four bytes."""
MAX_BODY_BYTES = 64 * 1024
REQUEST_S = 10.0
"""For a whole request to come in."""
_ANSWER_S = 5.0
_READ_BYTES = 4 * 1024
_BACKLOG = 16


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Names of headers are in lower case; of a name that is repeated, the last one counts."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Its answer, in JSON."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = field(default=())


class HttpRefusedError(Exception):
    """A request can't be read. `status` says so."""

    def __init__(self, status: int, problem: str) -> None:
        """Keep both."""
        super().__init__(problem)
        self.status = status


Answer = Callable[[HttpRequest], Awaitable[HttpAnswer]]
Refuse = Callable[[HttpRefusedError], HttpAnswer]


@contextlib.asynccontextmanager
async def serving_http(
    listen: Listen, answer: Answer, refuse: Refuse, *, request_s: float = REQUEST_S
) -> AsyncIterator[str]:
    """Serve for the length of the block, which is told the address. Connections end with it.

    Raises:
        ListenFailedError: the address can't be had.
    """
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
    is_closing = False

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_closing or len(connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(_serve(reader, writer, answer, refuse, request_s), name="webhook connection")
        connections[task] = writer
        task.add_done_callback(connections.pop)

    with _bound(listen) as (sock, address):
        start = asyncio.start_server if listen.path is None else asyncio.start_unix_server
        server = await start(connected, sock=sock, limit=_READ_BYTES)
        try:
            yield address
        finally:
            is_closing = True
            server.close()
            for task, writer in connections.items():
                task.cancel()
                writer.transport.abort()  # a task that has not begun closes nothing itself
            if connections:
                await asyncio.wait(connections)
            await server.wait_closed()


@contextlib.contextmanager
def _bound(listen: Listen) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket, and its address."""
    with contextlib.ExitStack() as stack:
        try:
            if listen.path is not None:
                stack.enter_context(claimed(listen.path))
                sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                with private_umask():
                    sock.bind(str(listen.path))
                sock.listen(_BACKLOG)
                address = listen.target
            else:
                family, _, _, _, where = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
                sock = stack.enter_context(socket.create_server(where[:2], family=family, backlog=_BACKLOG))
                address = Listen(host=listen.host, port=sock.getsockname()[1]).target
        except OSError as exc:
            raise ListenFailedError(listen.target, exc.strerror or str(exc)) from exc
        yield sock, address


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer, refuse: Refuse, request_s: float
) -> None:
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    try:
        try:
            async with asyncio.timeout(request_s):
                request = await _read(http, reader, writer)
        except HttpRefusedError as exc:
            answered = refuse(exc)
        except h11.RemoteProtocolError as exc:
            answered = refuse(HttpRefusedError(exc.error_status_hint, "not a request of HTTP/1.1"))
        else:
            answered = await answer(request)
        async with asyncio.timeout(_ANSWER_S):
            writer.write(_written(http, answered))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
    except (OSError, h11.LocalProtocolError):  # too slow, gone, or past an answer; TimeoutError is one
        pass
    except Exception as exc:  # noqa: BLE001 - a fault of ours ends one connection
        get_logger().error("webhook_request_failed", exc_info=exc)
    finally:
        writer.transport.abort()


async def _read(http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                writer.write(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            http.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            head = event
            _check_length(head)
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            break
        else:
            raise ConnectionResetError("closed before its request was whole")
    return HttpRequest(
        method=head.method.decode("ascii"),
        path=head.target.decode("latin-1").partition("?")[0],
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body=bytes(body),
    )


def _check_length(head: h11.Request) -> None:
    """Refuse a body that is too long, or that does not say how long it is.

    Chunks of a byte each would cost the loop a second for 64 KiB.
    """
    headers = dict(head.headers)
    if b"transfer-encoding" in headers:
        raise HttpRefusedError(411, "a body needs its Content-Length")
    if int(headers.get(b"content-length", b"0")) > MAX_BODY_BYTES:
        raise HttpRefusedError(413, f"a body may have {MAX_BODY_BYTES} bytes")


def _written(http: h11.Connection, answer: HttpAnswer) -> bytes:
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        ("connection", "close"),
        *answer.headers,
    ]
    events = (
        h11.Response(status_code=answer.status, headers=headers),
        h11.Data(data=answer.body),
        h11.EndOfMessage(),
    )
    return b"".join(http.send(each) or b"" for each in events)


__all__ = [
    "MAX_BODY_BYTES",
    "MAX_CONNECTIONS",
    "MAX_HEAD_BYTES",
    "REQUEST_S",
    "HttpAnswer",
    "HttpRefusedError",
    "HttpRequest",
    "serving_http",
]
