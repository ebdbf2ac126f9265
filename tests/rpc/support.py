"""Requests, and what comes back of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from tests.sidecar import Sidecar

BOUND_S = 60.0
POLL_S = 0.02
"""Between looks at the log, which tells nobody."""


def call(tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> pb.CallToolRequest:
    return pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments or {}), **fields)


def text_of(result: tool_pb2.ToolResult) -> str:
    return "".join(block.text for block in result.content)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """`reason` of the status's ErrorInfo."""
    return str(_info_of(error).reason)


def metadata_of(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """`metadata` of the status's ErrorInfo."""
    return dict(_info_of(error).metadata)


def _info_of(error: grpc.aio.AioRpcError) -> ErrorInfo:
    status = rpc_status.from_call(error)  # type: ignore[arg-type] # an error of a call has what it asks for
    assert status is not None
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "fumehood"
    return info


async def refused(answer: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """The status and the reason that a request is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer
    return caught.value.code(), reason_of(caught.value)


async def logged(sidecar: Sidecar, tools: ToolServiceStub, call_id: str, code: str) -> None:
    """Return once the one line of a call that ran is in the log."""
    async with asyncio.timeout(BOUND_S):
        while not (found := [line for line in sidecar.log() if _ran(line, call_id)]):
            await asyncio.sleep(POLL_S)
            await tools.GetTool(pb.GetToolRequest(name="echo"))  # type: ignore[misc] # the stub is of both kinds
    assert [line["code"] for line in found] == [code]


def _ran(line: dict[str, Any], call_id: str) -> bool:
    return line.get("call_id") == call_id and line.get("code", "TOOL_NOT_FOUND") != "TOOL_NOT_FOUND"


@dataclass
class ToolClient:
    """Calls a sidecar's tools by their names."""

    sidecar: Sidecar
    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.tools: Any = ToolServiceStub(self.channel)
        self.plugins: Any = PluginServiceStub(self.channel)

    async def call(self, tool: str, **arguments: Any) -> tool_pb2.ToolResult:
        answer = await self.tools.CallTool(call(tool, arguments), timeout=BOUND_S)
        result: tool_pb2.ToolResult = answer.result
        return result

    async def details(self, tool: str, **arguments: Any) -> Any:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.error
        return json.loads(result.details_json)

    async def refusal(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """Why a call failed: the reason, and whether it may be repeated."""
        error = (await self.call(tool, **arguments)).error
        assert error.code == "TOOL_EXECUTION_FAILED", error
        return json.loads(error.details_json)["reason"], error.retryable

    async def reason(self, tool: str, **arguments: Any) -> str:
        return (await self.refusal(tool, **arguments))[0]
