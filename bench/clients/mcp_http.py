"""Loads an MCP server over Streamable HTTP. `python -m bench.clients.mcp_http URL REVISION [TOKEN]`.

Not by an SDK, whose own work would be most of a call: the bytes that one sends, over connections that are kept.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.harness.agent import serve
from bench.harness.load import Echo
from bench.payload import TEXT

MODERN = "2026-07-28"
_CALL = {"name": "echo", "arguments": {"text": TEXT}}
_CLIENT = {"name": "bench", "version": "1.0.0"}

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Server:
    """Its address, what each request shows, and the connections that are idle."""

    def __init__(self, url: str, revision: str, token: str) -> None:
        self._where = urlsplit(url)
        self._revision = revision
        self._headers = {
            "Host": self._where.netloc,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": revision,
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[Connection] = []
        self._ids = itertools.count(1)

    async def begin(self) -> None:
        """Handshake, where the revision has one."""
        if self._revision == MODERN:
            self._headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
            return
        about = {"protocolVersion": self._revision, "capabilities": {}, "clientInfo": _CLIENT}
        headers, _ = await self._post({"id": 0, "method": "initialize", "params": about})
        self._headers["Mcp-Session-Id"] = headers["mcp-session-id"]
        await self._post({"method": "notifications/initialized"})

    async def echo(self) -> None:
        """One call, whose answer is checked."""
        params: dict[str, Any] = dict(_CALL)
        if self._revision == MODERN:
            about = {"protocolVersion": MODERN, "clientInfo": _CLIENT, "clientCapabilities": {}}
            params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in about.items()}
        _, body = await self._post({"id": next(self._ids), "method": "tools/call", "params": params})
        answer = json.loads(body.partition(b"data: ")[2] or body)
        if answer["result"]["content"][0]["text"] != TEXT:
            raise RuntimeError(f"not an echo: {answer}")

    async def _post(self, message: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        lines = [f"{name}: {value}" for name, value in self._headers.items()]
        head = "\r\n".join([f"POST {self._where.path} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
        reader, writer = await self._connection()
        writer.write(head.encode() + body)
        status, *shown = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in shown)}
        answer = await _body(reader, headers)
        if status.split()[1] not in {"200", "202"}:
            raise RuntimeError(f"{status}: {answer!r}")
        self._idle.append((reader, writer))
        return headers, answer

    async def _connection(self) -> Connection:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():  # a server ends what is idle, between two turns
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._where.hostname, self._where.port)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    found = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return found


@asynccontextmanager
async def connect() -> AsyncIterator[Echo]:
    """Reach the server that goes on."""
    url, revision, *token = sys.argv[1:]
    server = _Server(url, revision, "".join(token))
    await server.begin()
    yield server.echo


if __name__ == "__main__":
    asyncio.run(serve(connect, connect))
