"""`fumehood.v1.ToolService`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import RefusedError
from fumehood_server.rpc import listing
from fumehood_server.rpc.admission import CALL_TOOL, STREAM_TOOL, caller_deadline
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.batch import MAX_BATCH_FIELDS, Batch
from fumehood_server.rpc.cancelling import cancel_call
from fumehood_server.rpc.questions import answer_question
from fumehood_server.rpc.reading import Requests, Service
from fumehood_server.rpc.recorded_calls import (
    MAX_GET_CALL_BYTES,
    MAX_RESOLUTION_FIELDS,
    get_call,
    resolve_call,
)
from fumehood_server.rpc.session import MAX_MESSAGE_FIELDS, Session, SessionContext
from fumehood_server.rpc.streaming import stream_call
from fumehood_server.rpc.tool_filter import MAX_LISTING_FIELDS
from fumehood_server.rpc.unary_calls import call_outcome, start_call

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["ToolService"].full_name

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class ToolService:
    """The methods. Each returns a serialised message, or raises RefusedError."""

    def __init__(self, server: ServerContext) -> None:
        """`server`: the parts that its methods call."""
        self._server = server

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        reader = self._server.reader
        methods = {
            "ListTools": reader.unary(self.list_tools, pb.ListToolsRequest, max_fields=MAX_LISTING_FIELDS),
            "GetTool": reader.unary(self.get_tool, pb.GetToolRequest),
            "CheckAvailability": reader.unary(
                self.check_availability, pb.CheckAvailabilityRequest, max_fields=MAX_LISTING_FIELDS
            ),
            "CallTool": reader.unary(self.call_tool, pb.CallToolRequest),
            "StreamTool": reader.streaming(self.stream_tool, pb.StreamToolRequest),
            "CallTools": reader.streaming(self.call_tools, pb.CallToolsRequest, max_fields=MAX_BATCH_FIELDS),
            "Session": reader.duplex(self.session, pb.SessionRequest, max_fields=MAX_MESSAGE_FIELDS),
            "GetCall": reader.unary(self.get_call, pb.GetCallRequest, max_bytes=MAX_GET_CALL_BYTES),
            "ResolveCall": reader.unary(
                self.resolve_call, pb.ResolveCallRequest, max_fields=MAX_RESOLUTION_FIELDS, waits=True
            ),
            "AnswerQuestion": reader.unary(self.answer_question, pb.AnswerQuestionRequest, waits=True),
            "CancelCall": reader.unary(self.cancel_call, pb.CancelCallRequest),
        }
        return Service(SERVICE, methods)

    async def list_tools(self, request: pb.ListToolsRequest, _context: _Context[pb.ListToolsRequest]) -> bytes:
        """See tool_service.proto, as for every method."""
        await self._server.catalog.look_for_programs()
        return listing.list_tools(self._server, request, asking().admitted).SerializeToString()

    async def get_tool(self, request: pb.GetToolRequest, _context: _Context[pb.GetToolRequest]) -> bytes:
        """One tool."""
        await self._server.catalog.look_for_programs()
        return listing.get_tool(self._server, request, asking().admitted).SerializeToString()

    async def check_availability(
        self, request: pb.CheckAvailabilityRequest, _context: _Context[pb.CheckAvailabilityRequest]
    ) -> bytes:
        """Whether tools could run now."""
        await self._server.catalog.look_for_programs()
        return listing.check_availability(self._server, request, asking().admitted).SerializeToString()

    async def call_tool(self, request: pb.CallToolRequest, context: _Context[pb.CallToolRequest]) -> bytes:
        """One call."""
        call = start_call(self._server, CALL_TOOL, request, context)
        del request  # the call holds what it needs of it, and the rest can be large
        outcome = await call_outcome(self._server, CALL_TOOL, call)
        response = pb.CallToolResponse()
        self._server.results.fill(response.result, outcome)
        return response.SerializeToString()

    async def stream_tool(self, request: pb.StreamToolRequest, context: _Context[pb.StreamToolRequest]) -> None:
        """One call with its updates."""
        server, caller = self._server, asking().admitted
        try:
            server.unread.check(caller.connection)
            deadline = caller_deadline(context.time_remaining())
            came_by = (STREAM_TOOL, context.invocation_metadata)
            admitted = server.admission.read_request(request.call, deadline, caller=caller, came_by=came_by)
        except RefusedError as exc:
            server.refusals.call("StreamTool", exc.refusal, request.call, caller.recorded)
            raise
        after = request.after_sequence
        del request  # likewise
        await stream_call(server, admitted, after, context)

    async def call_tools(self, request: pb.CallToolsRequest, context: _Context[pb.CallToolsRequest]) -> None:
        """A batch of calls."""
        with self._server.batches.take(context.peer()):
            batch = Batch(self._server, request, context)
            del request  # likewise
            await batch.run()

    async def session(self, requests: Requests[pb.SessionRequest], context: SessionContext) -> None:
        """Many calls over one stream."""
        with self._server.sessions.take(context.peer()):
            await Session(self._server, requests, context).run()

    async def get_call(self, request: pb.GetCallRequest, context: _Context[pb.GetCallRequest]) -> bytes:
        """One call by its id."""
        self._server.unread.check(context.peer())
        return (await get_call(self._server, request, asking().admitted)).SerializeToString()

    async def resolve_call(self, request: pb.ResolveCallRequest, _context: _Context[pb.ResolveCallRequest]) -> bytes:
        """Settle an outcome."""
        try:
            return (await resolve_call(self._server, request)).SerializeToString()
        except RefusedError as exc:
            caller = asking().admitted.recorded
            self._server.refusals.about_call("ResolveCall", exc.refusal, request.call_id, caller)
            raise

    async def answer_question(
        self, request: pb.AnswerQuestionRequest, _context: _Context[pb.AnswerQuestionRequest]
    ) -> bytes:
        """Answer what a call's tool asks."""
        await answer_question(self._server, request, asking().admitted)
        return b""

    async def cancel_call(self, request: pb.CancelCallRequest, _context: _Context[pb.CancelCallRequest]) -> bytes:
        """Cancel one call."""
        cancel_call(self._server, request, asking().admitted)
        return b""
