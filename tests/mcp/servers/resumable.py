"""An MCP server of the official SDK over Streamable HTTP that keeps events and closes streams. It prints its port.

It speaks the revision 2025-11-25 alone.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage, JSONRPCNotification
from pydantic import BaseModel

server = MCPServer("resumable")
runs = 0


class Store(EventStore):
    """Replays a stream once what it waits for is there, so that no event comes between the replay and what follows."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.events: dict[str, tuple[str, JSONRPCMessage | None]] = {}
        self.has_more = asyncio.Event()
        self.futile = 0
        """How often to replay nothing, and end the stream. Negative: always."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        number = f"{stream_id}/{next(self.numbers)}"
        self.events[number] = (stream_id, message)
        if message is not None and not isinstance(message, JSONRPCNotification):
            self.has_more.set()
        return number

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if self.futile:
            self.futile -= 1
            return None
        await self.has_more.wait()
        stream_id, _ = self.events[last_event_id]
        after = itertools.dropwhile(lambda each: each[0] != last_event_id, list(self.events.items()))
        for number, (stream, message) in itertools.islice(after, 1, None):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, number))
        return stream_id


store = Store()


class Form(BaseModel):
    colour: str


async def close(ctx: Context[Any, Any], futile: int) -> None:
    global runs  # noqa: PLW0603
    runs += 1
    store.has_more.clear()
    store.futile = futile
    await ctx.close_sse_stream()
    await ctx.report_progress(1, 2, "while it was closed")


@server.tool()
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
async def closes(futile: int, ctx: Context[Any, Any]) -> int:
    """Closes its stream, and says how many calls have been run that do."""
    await close(ctx, futile)
    return runs


@server.tool()
async def asks(ctx: Context[Any, Any]) -> str:
    """Closes its stream, and asks then."""
    await close(ctx, 0)
    answer = await ctx.elicit("Which one?", Form)
    return answer.data.colour if answer.action == "accept" else "none"


def app() -> Any:
    inner = server.streamable_http_app(event_store=store, retry_interval=100)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and any(name == b"mcp-method" for name, _ in scope["headers"]):
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await inner(scope, receive, send)

    return outer


def main() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.run(uvicorn.Server(uvicorn.Config(app(), log_level="error", lifespan="on")).serve(sockets=[sock]))


main()
