"""Loads the official MCP SDK for Python over stdio. `python -m bench.clients.mcp_python`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.types import TextContent

from bench.harness.agent import serve
from bench.harness.load import Echo
from bench.harness.processes import python
from bench.payload import TEXT

_COMMAND, *_ARGUMENTS = python("bench.peers.mcp_server")


@asynccontextmanager
async def start() -> AsyncIterator[Echo]:
    """Start a server and connect to it."""
    parameters = StdioServerParameters(command=_COMMAND, args=_ARGUMENTS)
    async with stdio_client(parameters) as (reads, writes), ClientSession(reads, writes) as session:
        await session.initialize()

        async def echo() -> None:
            result = await session.call_tool("echo", {"text": TEXT})
            if not isinstance(result.content[0], TextContent):
                raise TypeError("not a text")
            if result.content[0].text != TEXT:
                raise RuntimeError("not an echo")

        yield echo


def server_pid() -> int:
    """Return the process id of the server: the one child of this process."""
    (server,) = psutil.Process().children()
    return server.pid


if __name__ == "__main__":
    asyncio.run(serve(start, start, server_pid))
