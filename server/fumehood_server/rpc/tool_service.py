"""`fumehood.v1.ToolService`."""

from __future__ import annotations

import asyncio
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
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["ToolService"].full_name

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class ToolService:
    """The methods. Each returns a serialised message."""

    def __init__(self, server: ServerContext) -> None:
        """Serve these server."""
        self._server = server

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
            return listing.list_tools(self._server, request).SerializeToString()
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def get_tool(self, request: pb.GetToolRequest, context: _Context[pb.GetToolRequest]) -> bytes:
        """One tool."""
        try:
            return listing.get_tool(self._server, request).SerializeToString()
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def check_availability(
        self, request: pb.CheckAvailabilityRequest, context: _Context[pb.CheckAvailabilityRequest]
    ) -> bytes:
        """Whether tools could run now."""
        try:
            return listing.check_availability(self._server, request).SerializeToString()
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def call_tool(self, request: pb.CallToolRequest, context: _Context[pb.CallToolRequest]) -> bytes:
        """One call."""
        server = self._server
        try:
            admitted = server.admission.read_request(request, caller_deadline(context.time_remaining()))
            call = server.executor.start(admitted)
        except RefusedError as exc:
            await abort(context, exc.refusal)
        try:
            outcome = await call.outcome()
        except asyncio.CancelledError:  # gRPC's: its caller has gone away
            call.abandon()
            raise
        response = pb.CallToolResponse()
        server.results.fill(response.result, outcome)
        return response.SerializeToString()

    async def stream_tool(self, request: pb.StreamToolRequest, context: _Context[pb.StreamToolRequest]) -> None:
        """One call with its updates."""
        try:
            admitted = self._server.admission.read_request(request.call, caller_deadline(context.time_remaining()))
            await stream_call(self._server, admitted, context)
        except RefusedError as exc:
            await abort(context, exc.refusal)

    async def session(self, _requests: object, context: SessionContext) -> None:
        """Many calls over one stream."""
        await Session(self._server, context).run()

    async def cancel_call(self, request: pb.CancelCallRequest, context: _Context[pb.CancelCallRequest]) -> bytes:
        """Cancel one call."""
        try:
            cancel_call(self._server.executor, request)
        except RefusedError as exc:
            await abort(context, exc.refusal)
        return b""
