"""`fumehood.v1.ToolService`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import RefusedError
from fumehood_server.rpc import listing
from fumehood_server.rpc.admission import caller_deadline
from fumehood_server.rpc.cancelling import cancel_call
from fumehood_server.rpc.parsing import parser, streaming, unary
from fumehood_server.rpc.session import Session, SessionContext
from fumehood_server.rpc.status import abort
from fumehood_server.rpc.streaming import stream_call

if TYPE_CHECKING:
    from fumehood_server.rpc.parts import Parts

SERVICE = pb.DESCRIPTOR.services_by_name["ToolService"].full_name

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class ToolService:
    """The methods. Each returns a serialised message."""

    def __init__(self, parts: Parts) -> None:
        """Serve these parts."""
        self._parts = parts

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service for `add_generic_rpc_handlers`."""
        handlers = {
            "ListTools": unary(self.list_tools, pb.ListToolsRequest),
            "GetTool": unary(self.get_tool, pb.GetToolRequest),
            "CheckAvailability": unary(self.check_availability, pb.CheckAvailabilityRequest),
            "CallTool": unary(self.call_tool, pb.CallToolRequest),
            "StreamTool": streaming(self.stream_tool, pb.StreamToolRequest),
            "Session": grpc.stream_stream_rpc_method_handler(self.session, parser(pb.SessionRequest)),
            "CancelCall": unary(self.cancel_call, pb.CancelCallRequest),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def list_tools(self, request: pb.ListToolsRequest, context: _Context[pb.ListToolsRequest]) -> bytes:
        """See tool_service.proto, as for every method."""
        try:
            return listing.list_tools(self._parts, request).SerializeToString()
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def get_tool(self, request: pb.GetToolRequest, context: _Context[pb.GetToolRequest]) -> bytes:
        """One tool."""
        try:
            return listing.get_tool(self._parts, request).SerializeToString()
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def check_availability(
        self, request: pb.CheckAvailabilityRequest, context: _Context[pb.CheckAvailabilityRequest]
    ) -> bytes:
        """Whether tools could run now."""
        try:
            return listing.check_availability(self._parts, request).SerializeToString()
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def call_tool(self, request: pb.CallToolRequest, context: _Context[pb.CallToolRequest]) -> bytes:
        """One call."""
        parts = self._parts
        try:
            admitted = parts.admission.read(request, caller_deadline(context.time_remaining()))
            outcome = await parts.executor.call(admitted)
        except RefusedError as exc:
            await abort(context, exc.refusal)
        response = pb.CallToolResponse()
        parts.results.fill(response.result, outcome)
        return response.SerializeToString()

    async def stream_tool(self, request: pb.StreamToolRequest, context: _Context[pb.StreamToolRequest]) -> None:
        """One call with its updates."""
        try:
            admitted = self._parts.admission.read(request.call, caller_deadline(context.time_remaining()))
            await stream_call(self._parts, admitted, context)
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def session(self, _requests: object, context: SessionContext) -> None:
        """Many calls over one stream."""
        await Session(self._parts, context).run()

    async def cancel_call(self, request: pb.CancelCallRequest, context: _Context[pb.CancelCallRequest]) -> bytes:
        """Cancel one call."""
        try:
            cancel_call(self._parts.executor, request)
        except RefusedError as exc:
            await abort(context, exc.refusal)
        return b""
