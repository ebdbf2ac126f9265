"""MCP servers as plugins, and calls of their tools through a sidecar."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

SERVERS = Path(__file__).parent / "servers"
SMALL = '["python", "server.py"]'


def mcp_plugin(
    folder: Path, *, command: str = SMALL, more: str = "", environment: Mapping[str, object] | None = None
) -> Path:
    """A plugin of kind `mcp` with the small server in its folder. `environment` are TOML values."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SERVERS / "small.py", folder / "server.py")
    lines = [f'[plugin]\nname = "{folder.name}"\nversion = "1.0.0"\nkind = "mcp"\ncommand = {command}', more]
    lines += ["[plugin.environment]", *(f"{name} = {value}" for name, value in (environment or {}).items())]
    (folder / "plugin.toml").write_text("\n".join(lines) + "\n")
    return folder


class Caller:
    """Calls tools by name, over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = ToolServiceStub(channel)

    async def call(self, tool: str, timeout_s: float = 60.0, /, **arguments: object) -> pb.ToolResult:
        request = pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments))
        return (await self.stub.CallTool(request, timeout=timeout_s)).result

    async def text(self, tool: str, /, **arguments: object) -> str:
        """The text of a call that did not fail."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.error
        return result.content[0].text

    async def tools(self) -> dict[str, tool_pb2.Tool]:
        listed = await self.stub.ListTools(pb.ListToolsRequest(include_unavailable=True))
        return {tool.definition.name: tool for tool in listed.tools}


def reason(result: pb.ToolResult) -> str:
    """Why a call failed, as its details say."""
    assert result.is_error, result
    return str(json.loads(result.error.details_json)["reason"])
