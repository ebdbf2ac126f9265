"""Serves one MCP client over stdin and stdout, until stdin ends."""

from __future__ import annotations

import asyncio
import warnings

import grpc
import uvloop

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.errors import McpMissingError
from fumehood_server.mcp.tool_choice import ToolChoice


def serve_stdio(target: str, *, token: str, credentials: grpc.ChannelCredentials | None, choice: ToolChoice) -> None:
    """Serve until the client closes stdin.

    Raises:
        McpMissingError: the MCP SDK is not installed.
    """
    try:
        from mcp.server.stdio import stdio_server  # noqa: PLC0415 - the extra `mcp`
        from mcp.shared.exceptions import MCPDeprecationWarning  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise McpMissingError(error.name or "mcp") from error
    from fumehood_server.mcp.door import McpDoor  # noqa: PLC0415
    from fumehood_server.mcp.sidecar_link import SidecarLink  # noqa: PLC0415

    # Logging and the handshake are of the past in 2026-07-28, and of the present in 2025-11-25.
    warnings.simplefilter("ignore", MCPDeprecationWarning)

    async def serve() -> None:
        caller = McpCaller(token)
        async with SidecarLink(target, credentials=credentials) as link:
            door = McpDoor(link, choice, lambda _context: caller)
            async with door.running(), stdio_server() as (reads, writes):
                await door.server.run(reads, writes, door.server.create_initialization_options())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


__all__ = ["serve_stdio"]
