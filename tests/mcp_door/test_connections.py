"""The bounds of a connection in time and number, by a server whose times are short."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine

import pytest
import uvicorn
from fumehood_server.mcp.http.connections import BoundedConnection
from starlette.types import Receive, Scope, Send

BOUND_S = 30.0
SHORT_S = 0.2
LONG_S = 3600.0
LARGE = b"x" * 16 * 1024 * 1024


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """At /early answers at once; at /large with much; elsewhere when the body is there."""
    path = scope["path"]
    while path != "/early" and (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    body = LARGE if path == "/large" else b"."
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def served(*, open_now: set[object] | None = None, **bounds: float) -> AsyncIterator[int]:
    """The port of a server whose connections have these bounds, and no other that is ever felt.

    `open_now` holds its connections.
    """
    found = {"head_timeout_s": LONG_S, "body_timeout_s": LONG_S, "read_timeout_s": LONG_S, **bounds}
    config = uvicorn.Config(
        app,
        http=type("Connection", (BoundedConnection,), found),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=int(LONG_S),
        timeout_graceful_shutdown=0,
    )
    config.load()
    state = uvicorn.Server(config).server_state
    if open_now is not None:
        state.connections = open_now  # type: ignore[assignment] # of connections
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: config.http_protocol_class(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in list(state.connections):
            each.transport.abort()  # type: ignore[union-attr] # a connection that was made has one


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection has ended, however that is done."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while more := await reader.read(65536):
            answer += more
    return answer


def post(path: str = "/", length: int = 10) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost:"], ids=["nothing", "half a head"])
async def test_a_head_that_does_not_come_whole_ends_its_connection(sent: bytes) -> None:
    async with served(head_timeout_s=SHORT_S) as port, connected(port) as (reader, writer):
        writer.write(sent)
        assert await ended(reader) == b""


def test_half_a_second_head_ends_its_connection_and_a_whole_one_does_not() -> None:
    _run_without_stalls(_send_two_heads_and_a_half())


async def _send_two_heads_and_a_half() -> None:
    async with served(head_timeout_s=SHORT_S) as port, connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(post(length=0))
            assert (await reader.readuntil(b"\r\n\r\n.")).startswith(b"HTTP/1.1 200")
        writer.write(post(length=0)[:-2])
        assert await ended(reader) == b""


@pytest.mark.parametrize("path", ["/", "/early"], ids=["not answered", "answered"])
async def test_a_body_that_does_not_come_whole_ends_its_connection(path: str) -> None:
    async with served(body_timeout_s=SHORT_S) as port, connected(port) as (reader, writer):
        writer.write(post(path) + b"12345")
        assert (b" 200 " in await ended(reader)) is (path == "/early")


def test_a_connection_whose_request_was_answered_early_does_not_stay_for_ever() -> None:
    _run_without_stalls(_be_answered_early_and_stay())


async def _be_answered_early_and_stay() -> None:
    async with served(head_timeout_s=SHORT_S) as port, connected(port) as (reader, writer):
        writer.write(post("/early"))
        await reader.readuntil(b"\r\n\r\n.")
        writer.write(b"1234567890")
        assert await ended(reader) == b""


@pytest.mark.parametrize("last", ["", "Connection: close\r\n"], ids=["kept alive", "to be closed"])
def test_an_answer_that_is_not_read_ends_its_connection_and_one_that_is_read_does_not(last: str) -> None:
    _run_without_stalls(_read_one_and_not_the_other(last))


class _StallFreeLoop(asyncio.SelectorEventLoop):
    """Its clock goes on by a part of `SHORT_S` from one look to the next one at most.

    Client and server are one process here. Where the machine halts it for longer than a client may take to write or to
    read, the timer would come first.
    """

    _shown = _seen = 0.0

    def time(self) -> float:
        now = super().time()
        self._shown += min(now - self._seen, SHORT_S / 8)
        self._seen = now
        return self._shown


def _run_without_stalls(test: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=_StallFreeLoop) as runner:
        runner.run(test)


async def _read_one_and_not_the_other(last: str) -> None:
    open_now: set[object] = set()
    async with served(read_timeout_s=SHORT_S, open_now=open_now) as port, connected(port) as (reader, asking):
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.setblocking(False)
            await asyncio.get_running_loop().sock_connect(unread, ("127.0.0.1", port))
            unread.send(f"GET /large HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode())
            assert await asyncio.get_running_loop().sock_recv(unread, 1) == b"H"
            asking.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert len(await ended(reader)) > len(LARGE)
            while open_now:  # noqa: ASYNC110 - uvicorn's set tells nobody
                await asyncio.sleep(0.01)


async def test_one_connection_too_many_is_closed_at_once() -> None:
    async with served(max_connections=1) as port, connected(port) as (first, writer):
        writer.write(post(length=0))
        await first.readuntil(b"\r\n\r\n.")
        async with connected(port) as (second, _):
            assert await ended(second) == b""
        writer.write(post(length=0))
        await first.readuntil(b"\r\n\r\n.")
