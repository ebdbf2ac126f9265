"""Loads the official MCP SDK for Python over stdio. `python -m bench.clients.mcp_python [--low-level]`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from bench.harness.agent import serve
from bench.harness.load import Echo
from bench.harness.processes import python
from bench.payload import TEXT


@asynccontextmanager
async def start() -> AsyncIterator[Echo]:
    """Start a server and connect to it."""
    command, *arguments = python("bench.peers.mcp_server", *sys.argv[1:])
    async with Client(StdioServerParameters(command=command, args=arguments)) as client:

        async def echo() -> None:
            result = await client.call_tool("echo", {"text": TEXT})
            if not isinstance(result.content[0], TextContent) or result.content[0].text != TEXT:
                raise RuntimeError("not an echo")

        yield echo


def server_pid() -> int:
    """Return the process id of the server: the one child of this process."""
    (server,) = psutil.Process().children()
    return server.pid


if __name__ == "__main__":
    asyncio.run(serve(start, start, server_pid))
