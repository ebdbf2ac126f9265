"""Serves one MCP client over stdin and stdout, until it closes one of them or a signal ends it."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.errors import McpMissingError
from fumehood_server.mcp.tool_choice import ToolChoice

if TYPE_CHECKING:
    from fumehood_server.mcp.sidecar_link import SidecarLink


def serve_stdio(
    target: str,
    *,
    token: str,
    credentials: grpc.ChannelCredentials | None,
    choice: ToolChoice,
    approving: str = "",
    remedy: str = "",
    say: Callable[[str], object] = lambda _: None,
) -> int:
    """Serve until the client closes stdin, or reads no more. Returns 0, or the signal's number that has ended it.

    SIGINT, SIGTERM and SIGHUP end it in order, unless they were ignored; the calls under way are cancelled. `approving`
    says how a call is approved elsewhere than at the client, `remedy` what to do where the sidecar can't be reached:
    the client is told that when it asks for something, and `say` at once.

    Raises:
        McpMissingError: the MCP SDK is not installed.
    """
    if sys.stdin is None or sys.stdout is None:  # closed from the beginning: descriptors of the loop's took its number
        return 0
    try:
        from mcp.shared.exceptions import MCPDeprecationWarning  # noqa: PLC0415 - the extra `mcp`
    except ModuleNotFoundError as error:
        raise McpMissingError(error.name or "mcp") from error
    from fumehood_server.mcp.call_events import APPROVING  # noqa: PLC0415
    from fumehood_server.mcp.door import McpDoor  # noqa: PLC0415
    from fumehood_server.mcp.ending_signals import ending_signals  # noqa: PLC0415
    from fumehood_server.mcp.sidecar_link import SidecarLink  # noqa: PLC0415
    from fumehood_server.mcp.stdio_streams import stdio_streams  # noqa: PLC0415

    # Logging and the handshake are of the past in 2026-07-28, and of the present in 2025-11-25.
    warnings.simplefilter("ignore", MCPDeprecationWarning)

    async def serve() -> None:
        caller = McpCaller(token)
        async with SidecarLink(target, credentials=credentials, remedy=remedy) as link:
            looking = asyncio.create_task(_say_if_away(link, caller, say))
            try:
                door = McpDoor(link, choice, lambda _context: caller, approving=approving or APPROVING)
                async with door.running(), stdio_streams() as (reads, writes):
                    await door.server.run(reads, writes, door.server.create_initialization_options())
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)  # nothing of it ends the server

    async def serve_until_signalled() -> int:
        serving = asyncio.ensure_future(serve())
        with ending_signals(serving) as ending:
            try:
                await serving
            except asyncio.CancelledError:
                if not ending.number:
                    raise
            return ending.number

    # Not uvloop: it makes each descriptor that it watches non-blocking, and with it the parent's, or the terminal.
    with asyncio.Runner() as runner:
        return runner.run(serve_until_signalled())


async def _say_if_away(link: SidecarLink, caller: McpCaller, say: Callable[[str], object]) -> None:
    """Tell of a sidecar that can't be reached. What it refuses, the client is told."""
    from fumehood_server.mcp.sidecar_link import UNREACHABLE, SidecarRefusedError  # noqa: PLC0415

    try:
        await link.check(caller)
    except SidecarRefusedError as error:
        if error.reason == UNREACHABLE:
            say(error.message)


__all__ = ["serve_stdio"]
