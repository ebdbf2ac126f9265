"""The official SDK's server over stdio, revision 2026-07-28: what it says where it is asked to."""

from __future__ import annotations

from pathlib import Path

from tests.mcp.direct import direct_engine

CODE = """
from mcp.server.mcpserver import Context, MCPServer
server = MCPServer("official")
@server.tool()
async def talk(ctx: Context) -> str:
    for level in ("debug", "info", "warning"):
        await ctx.log(level, f"of {level}")
    return "said"
server.run("stdio")
"""


def test_server_is_asked_to_log_from_info_on(tmp_path: Path) -> None:
    with direct_engine(tmp_path, CODE) as engine:
        assert engine.call("talk").content[0].text == "said"
        engine.call("talk")
        assert set(engine.lines) == {"of info", "of warning"}
