"""Test servers on loopback, and a fake resolver and dialler that record their calls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from fumehood_sandbox import Level
from fumehood_server.egress import (
    Access,
    EgressError,
    EgressEvent,
    EgressFailedError,
    EgressLimits,
    EgressRequest,
    OwnListeners,
    Reason,
    RequestOrigin,
    access_for,
)
from fumehood_server.egress.broker import Broker
from fumehood_server.egress.dial import TcpDialler
from fumehood_server.egress.stream import Stream, TcpStream

ORIGIN = RequestOrigin(plugin="fetcher", tool="fetch", call_id="call-1")
QUICK = EgressLimits(timeout_s=60, connect_timeout_s=30)
BOUND_S = 60.0

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Names:
    """A resolver with a table. A name's list of answers is used up one a look-up; the last one stays."""

    table: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list)

    async def resolve(self, name: str, *, owner: str, timeout_s: float) -> tuple[IPv4Address | IPv6Address, ...]:
        assert owner
        assert timeout_s > 0
        self.asked.append(name)
        answers = self.table.get(name)
        if answers is None:
            raise EgressFailedError(Reason.NAME_NOT_RESOLVED, f"no {name}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return tuple(ip_address(each) for each in answer)


def names(**table: str | list[str]) -> Names:
    """`names(a_test="127.0.0.1")`: underscores stand for dots."""
    return Names(
        {name.replace("_", "."): [[value] if isinstance(value, str) else value] for name, value in table.items()}
    )


@dataclass(slots=True)
class Recorder:
    """A dialler that records each dial. `to` is the port of loopback that all lead to; without it, all are refused."""

    to: int | None = None
    dials: list[tuple[str, int, str | None]] = field(default_factory=list)

    async def dial(self, address: IPv4Address | IPv6Address, port: int, *, tls_name: str | None) -> Stream:
        self.dials.append((str(address), port, tls_name))
        if self.to is None:
            raise EgressFailedError(Reason.CONNECT_FAILED, "nobody is there")
        return TcpStream(*await asyncio.open_connection("127.0.0.1", self.to))


class Events(list[EgressEvent]):
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def __call__(self, event: EgressEvent) -> None:
        self.append(event)
        self._changed.set()

    async def reach(self, count: int) -> None:
        """Wait until there are so many."""
        async with asyncio.timeout(BOUND_S):
            while len(self) < count:
                self._changed.clear()
                await self._changed.wait()


@dataclass(slots=True)
class Net:
    """A broker and what its fakes recorded."""

    broker: Broker
    names: Names
    recorder: Recorder
    events: Events


def net(
    *, resolver: Names | None = None, to: int | None = None, real: bool = False, own: OwnListeners | None = None
) -> Net:
    """A broker that dials through a recorder, or through the real dialler, and never `own`."""
    events = Events()
    table, recorder = resolver or Names({}), Recorder(to)
    broker = Broker(resolver=table, dialler=TcpDialler() if real else recorder, sink=events, own=own)
    return Net(broker, table, recorder, events)


def external(*hosts: str, private: Iterable[str] = ("127.0.0.1",), limits: EgressLimits = QUICK) -> Access:
    """`private` holds by each of the names, and as addresses."""
    names = [name for name in (host.rpartition(":")[0] for host in hosts) if _is_name(name)]
    allowed = [*private, *(f"{name}={address}" for name in names for address in private)]
    return access_for(Level.EXTERNAL, hosts=hosts, allow_private=allowed, limits=limits)


def _is_name(host: str) -> bool:
    return not host.startswith(("[", "*")) and not host.rpartition(".")[2].isdigit()


@dataclass(slots=True)
class Got:
    """A response read to its end, or what stopped that."""

    status: int = 0
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    redirects: int = 0
    body: bytes = b""
    pieces: list[int] = field(default_factory=list)
    reason: Reason | None = None
    message: str = ""


async def fetch(network: Net, request: EgressRequest | str, access: Access) -> Got:
    got = Got()
    if isinstance(request, str):
        request = EgressRequest("GET", request)
    try:
        async with network.broker.request(request, access, ORIGIN) as response:
            got.status, got.url, got.redirects = response.status, response.url, response.redirects
            got.headers = dict(response.headers)
            async for piece in response.body():
                got.body += piece
                got.pieces.append(len(piece))
    except EgressError as error:
        got.reason, got.message = error.reason, error.message
    return got


@dataclass(slots=True)
class Server:
    """A running server and the requests that it was sent, each as its raw bytes."""

    port: int
    requests: list[bytes]


@asynccontextmanager
async def serving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """Run `handler` for each connection to a port of loopback. What it raises for a broken connection is dropped."""
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(one(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)


@asynccontextmanager
async def answering(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server that reads a request and answers with the next of `answers`; the last one stays."""
    left = list(answers)
    requests: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    async with serving(handler, tls=tls) as port:
        yield Server(port, requests)


def reply(body: bytes = b"ok", status: int = 200, *fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *fields]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def redirect(location: str, status: int = 302) -> bytes:
    return reply(b"", status, f"location: {location}")
