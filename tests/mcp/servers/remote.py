"""An MCP server of the official SDK over Streamable HTTP, on loopback. Its arguments: port 0, and what it is to be.

`legacy`: it refuses what is of 2026-07-28. `json`: it answers with JSON, not with a stream. `tls=CERT,KEY`. `token=T`.
It prints its port.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

WORDS = dict(each.partition("=")[::2] for each in sys.argv[1:])
server = MCPServer("remote")
cancelled = 0
gone = ""


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def echo(text: str) -> str:
    """Says it again, and that it only reads."""
    return text


@server.tool()
def seen(name: str, ctx: Context[Any, Any]) -> str:
    """Returns a header field of the request."""
    return (ctx.headers or {}).get(name.lower(), "(none)")


@server.tool()
async def slow(ctx: Context[Any, Any]) -> str:
    """Tells how it is getting on, for ever."""
    global cancelled  # noqa: PLW0603
    step = 0
    try:
        while True:
            step += 1
            await ctx.report_progress(step, 1000, f"step {step}")
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        cancelled += 1
        raise


@server.tool()
def cancellations() -> int:
    """How many calls were cancelled."""
    return cancelled


@server.tool()
def big(size: int) -> str:
    """Says much."""
    return "x" * size


@server.tool()
def change() -> str:
    """Changes `echo`."""
    server._tool_manager._tools["echo"].description = "Says otherwise."
    return "changed"


@server.tool()
def end_session(ctx: Context[Any, Any]) -> str:
    """Has the session forgotten."""
    global gone  # noqa: PLW0603
    gone = (ctx.headers or {})["mcp-session-id"]
    return "ended"


@server.resource("notes://one")
def note() -> str:
    """A note."""
    return "the note"


@server.prompt()
def greet(whom: str) -> str:
    """Greets."""
    return f"Greet {whom}."


def app() -> Any:
    inner = server.streamable_http_app(json_response="json" in WORDS)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", ())}
        if scope["type"] == "http":
            status = 0
            if "token" in WORDS and headers.get("authorization") != f"Bearer {WORDS['token']}":
                status = 401
            elif "legacy" in WORDS and "mcp-method" in headers:
                status = 400
            elif scope["path"] == "/moved":
                status = 307
            elif gone and headers.get("mcp-session-id") == gone:
                status = 404
            if status:
                fields = [(b"content-type", b"text/plain"), (b"location", b"/mcp")]
                body = b"go away"
                if status == 401:  # as the official SDK's servers do
                    fields = [(b"content-type", b"application/json"), (b"www-authenticate", b'Bearer error="x"')]
                    body = b'{"error": "invalid_token", "error_description": "Authentication required"}'
                await send({"type": "http.response.start", "status": status, "headers": fields})
                await send({"type": "http.response.body", "body": body})
                return
        await inner(scope, receive, send)

    return outer


def main() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    certificate, _, key = WORDS.get("tls", "").partition(",")
    config = uvicorn.Config(
        app(), log_level="error", ssl_certfile=certificate or None, ssl_keyfile=key or None, lifespan="on"
    )
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.run(uvicorn.Server(config).serve(sockets=[sock]))


main()
