"""A caller of one plugin in a sidecar of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fumehood.v1 import tool_pb2

from tests.rpc.support import BOUND_S, call
from tests.sidecar import Sidecar


@dataclass
class PluginClient:
    """The sidecar, and stubs of both of its services."""

    sidecar: Sidecar
    tools: Any
    plugins: Any

    async def call(self, tool: str, **arguments: Any) -> tool_pb2.ToolResult:
        answer = await self.tools.CallTool(call(tool, arguments), timeout=BOUND_S)
        result: tool_pb2.ToolResult = answer.result
        return result

    async def details(self, tool: str, **arguments: Any) -> Any:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.error
        return json.loads(result.details_json)
