"""gRPC channel (asyncio) from the MCP server to the sidecar, with its refusals as typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar, cast

import anyio.lowlevel
import grpc
import grpc.aio
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import approval_service_pb2_grpc as approval_grpc
from fumehood.v1 import mcp_service_pb2 as mcp_pb
from fumehood.v1 import mcp_service_pb2_grpc as mcp_grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from fumehood_server.errors import FumehoodError
from fumehood_server.mcp.callers import McpCaller

LOOKUP_TIMEOUT_S = 30.0
"""For listings and decisions. The first listing after a start may wait for plugins to be described."""

UNREACHABLE = "UNREACHABLE"
"""The reason where no sidecar answers."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_STATUS_KEY = "grpc-status-details-bin"

_Answer = TypeVar("_Answer")


@dataclass
class SidecarRefusedError(FumehoodError):
    """The sidecar refused a request, or can't be reached. Whoever asked must act."""

    reason: str
    """Of `google.rpc.ErrorInfo`; else the name of the gRPC status."""
    message: str
    status: grpc.StatusCode
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def retryable(self) -> bool:
        """Whether the same may succeed later."""
        return self.status in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}


class SidecarLink:
    """One channel, for all callers. For one event loop."""

    __slots__ = ("_approvals", "_channel", "_remedy", "_tools", "readings", "target")

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        remedy: str = "",
    ) -> None:
        """Nothing is dialled yet. Without `credentials` the connection is in plain text.

        `remedy` is what whoever asks is told to do where the sidecar can't be reached.
        """
        self.target = target
        self._remedy = remedy
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.enable_http_proxy", 0),  # a proxy for the web is none for a sidecar
            # A sidecar that starts anew is there again within a second.
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.initial_reconnect_backoff_ms", 100),
        ]
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options)
        self._tools = tool_grpc.ToolServiceStub(self._channel)
        self._approvals = approval_grpc.ApprovalServiceStub(self._channel)
        self.readings = mcp_grpc.McpServiceStub(self._channel)
        """For `read`."""

    async def __aenter__(self) -> Self:
        """Nothing is sent."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the channel: calls under way are cancelled."""
        await self._channel.close(None)

    async def list_tools(self, request: pb.ListToolsRequest, caller: McpCaller) -> pb.ListToolsResponse:
        """A page of tools. Raises SidecarRefusedError, as all methods here."""
        return await self._answer(self._tools.ListTools(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S))

    async def check(self, caller: McpCaller) -> None:
        """Whether the sidecar knows the caller."""
        request = pb.CheckAvailabilityRequest(names=["-"])  # no tool's name: nothing is looked up
        await self._answer(self._tools.CheckAvailability(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S))

    async def call_tool(self, request: pb.CallToolRequest, caller: McpCaller) -> tool_pb2.ToolResult:
        """Call and wait. Cancelling this cancels the call."""
        return (await self._answer(self._tools.CallTool(request, metadata=caller.metadata))).result

    async def stream_tool(
        self, request: pb.CallToolRequest, caller: McpCaller
    ) -> AsyncGenerator[pb.StreamToolResponse, None]:
        """Call, and yield what happens. Leaving the iterator cancels the call."""
        stream = self._tools.StreamTool(pb.StreamToolRequest(call=request), metadata=caller.metadata)
        try:
            async for event in stream:
                yield event
        except grpc.aio.AioRpcError as error:
            raise refused(error, self._remedy) from error
        except asyncio.CancelledError:
            await _raise_as_scope()
            raise
        finally:
            stream.cancel()

    async def answer_question(self, request: pb.AnswerQuestionRequest, caller: McpCaller) -> None:
        """Answer what a call's tool asks."""
        await self._answer(self._tools.AnswerQuestion(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S))

    async def cancel_call(self, call_id: str, caller: McpCaller) -> None:
        """Cancel a call, if it is under way."""
        request = pb.CancelCallRequest(call_id=call_id, reason="the MCP client has gone away")
        await self._answer(self._tools.CancelCall(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S))

    async def mcp_servers(self, caller: McpCaller) -> Sequence[mcp_pb.McpServer]:
        """The hosted MCP servers that the caller may read anything of."""
        request = mcp_pb.ListMcpServersRequest()
        answer = self.readings.ListMcpServers(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S)
        return (await self._answer(answer)).servers

    async def read(self, method: Callable[..., Awaitable[_Answer]], request: Message, caller: McpCaller) -> _Answer:
        """Read a hosted MCP server by a method of `readings`, and wait. Cancelling this cancels the call."""
        return await self._answer(method(request, metadata=caller.metadata))

    async def approval(self, approval_id: str, caller: McpCaller) -> approval_pb.Approval | None:
        """One that the caller may see."""
        request = approval_pb.ListApprovalsRequest(approval_id=approval_id)
        answer = self._approvals.ListApprovals(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S)
        found = (await self._answer(answer)).approvals
        return found[0] if found else None

    async def decide(self, request: approval_pb.DecideApprovalRequest, caller: McpCaller) -> None:
        """Decide one."""
        await self._answer(self._approvals.DecideApproval(request, metadata=caller.metadata, timeout=LOOKUP_TIMEOUT_S))

    async def _answer(self, call: Awaitable[_Answer]) -> _Answer:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise refused(error, self._remedy) from error
        except asyncio.CancelledError:  # the call itself is cancelled by then
            await _raise_as_scope()
            raise


async def _raise_as_scope() -> None:
    """Raise the cancellation as anyio does, where a scope of its own asked for it.

    A scope swallows the CancelledError that bears its message, and no other. A unary call of grpc.aio catches it, and
    raises one of its own without a message. That one would leave the scope of its MCP request, and end the task group
    around it: over stdio the process with all that is under way, over HTTP the session.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()


def refused(error: grpc.aio.AioRpcError, remedy: str = "") -> SidecarRefusedError:
    """A gRPC status as a typed error, by its `ErrorInfo` where it has one; `remedy` is of one without an answer."""
    status, message = error.code(), error.details() or "the sidecar can't be reached"
    metadata = cast("Sequence[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in metadata:
        if key == _STATUS_KEY:
            details = Status.FromString(value if isinstance(value, bytes) else value.encode())
            for each in details.details:
                info = ErrorInfo()
                if each.Unpack(info):
                    return SidecarRefusedError(info.reason, message, status, dict(info.metadata))
    if status is grpc.StatusCode.UNAVAILABLE:
        told = f"{remedy} ({message})" if remedy else message
        return SidecarRefusedError(UNREACHABLE, f"the sidecar can't be reached: {told}", status)
    return SidecarRefusedError(status.name, message, status)
