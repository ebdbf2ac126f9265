"""A relay of its own for a test, and the programs that speak to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fumehood_server.egress import Access
from fumehood_server.egress.relay import Relay

from tests.egress.support import (
    BOUND_S,
    ORIGIN,
    Net,
)


@asynccontextmanager
async def relaying(network: Net, access: Access, **options: float) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with Relay(network.broker, **options).serve(listener, access, lambda: ORIGIN):  # type: ignore[arg-type]
        yield port
    assert listener.fileno() == -1


@dataclass(slots=True)
class Answer:
    status: int
    refusal: str
    body: bytes


async def ask(port: int, request: bytes) -> Answer:
    """Send a request to a relay and read its answer to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        raw = await asyncio.wait_for(reader.read(), BOUND_S)
    finally:
        writer.close()
    head, _, body = raw.removeprefix(b"HTTP/1.1 100 \r\n\r\n").partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return Answer(int(lines[0].split(" ")[1]) if raw else 0, fields.get("fumehood-refusal", ""), body)


@asynccontextmanager
async def tunnelled(port: int, target: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Connection: keep-alive\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND_S)
        assert head.startswith(b"HTTP/1.1 200 ")
        yield reader, writer
    finally:
        writer.close()


def connect(target: str) -> bytes:
    """The head of a CONNECT."""
    return f"CONNECT {target} HTTP/1.1\r\nHost: good.test:443\r\n\r\n".encode()
