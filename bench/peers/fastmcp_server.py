"""The peer's echo tool over Streamable HTTP, as FastMCP's documentation writes one: prints its port once it serves."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from fastmcp import FastMCP

server = FastMCP("echo")


@server.tool
def echo(text: str) -> str:
    """Say the same."""
    return text


class _Server(uvicorn.Server):
    """What `server.run("http")` starts, which says when it serves."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        sys.stdout.write(f"{self.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()


async def main() -> None:
    """Serve until it is terminated."""
    config = uvicorn.Config(server.http_app("/mcp"), host="127.0.0.1", port=0, log_level="warning", lifespan="on")
    await _Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main())
