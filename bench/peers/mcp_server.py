"""The peer's echo tool, as the documentation of the MCP SDK for Python writes one.

`--low-level` serves it without the decorators, which is faster and, unlike everybody else here, validates no arguments.
"""

from __future__ import annotations

import asyncio
import sys

from mcp import types
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    """Say the same."""
    return text


async def _list_tools(_context: object, _params: object) -> types.ListToolsResult:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return types.ListToolsResult(tools=[types.Tool(name="echo", description="Say the same.", input_schema=schema)])


async def _call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    text = (params.arguments or {})["text"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def serve_low_level() -> None:
    """Serve until stdin ends."""
    low: Server[object] = Server("echo", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (reads, writes):
        await low.run(reads, writes, low.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1:] == ["--low-level"]:
        asyncio.run(serve_low_level())
    else:
        server.run(transport="stdio")
