"""The official MCP SDK for Python over stdio, with one echo tool.

Its low-level server is taken, not the decorated one, since it was 10 to 20 percent faster here: the peer at its best.
"""

from __future__ import annotations

import asyncio

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_ECHO = types.Tool(
    name="echo",
    description="Say the same.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


async def _list_tools(_context: object, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_ECHO])


async def _call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    text = (params.arguments or {})["text"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def main() -> None:
    """Serve until stdin ends."""
    server: Server[object] = Server("echo", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
