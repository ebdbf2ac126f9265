"""`ListStandingApprovals` and `RevokeStandingApproval` of `fumehood.v1.ApprovalService`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import grpc
from fumehood.v1 import approval_service_pb2 as pb

from fumehood_server.model.standing import Standing
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.policy import ApprovalDesk, StandingDecisions
from fumehood_server.policy.decisions import check_length, unavailable_refused
from fumehood_server.rpc.admission import MAX_NAME_BYTES
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.paging import MAX_PAGE_BYTES, make_token, page_size, read_token
from fumehood_server.rpc.reading import Method
from fumehood_server.rpc.standing_messages import standing_message

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

_METHOD = "ListStandingApprovals"
_PORTION = 64
_MAX_READ = 4_096
"""Of one page, seen or not: who may see few gets shorter pages, and no one request reads all."""

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class StandingMethods:
    """The methods. Each returns a serialised message, or raises RefusedError."""

    def __init__(self, server: ServerContext, desk: Callable[[], ApprovalDesk]) -> None:
        """`desk` gives the approvals that this sidecar keeps, or raises."""
        self._server = server
        self._desk = desk

    def methods(self) -> dict[str, Method]:
        """For the service."""
        reader = self._server.reader
        return {
            _METHOD: reader.unary(self.list_standing, pb.ListStandingApprovalsRequest, waits=True),
            "RevokeStandingApproval": reader.unary(self.revoke_standing, pb.RevokeStandingApprovalRequest, waits=True),
        }

    async def list_standing(
        self, request: pb.ListStandingApprovalsRequest, context: _Context[pb.ListStandingApprovalsRequest]
    ) -> bytes:
        """See approval_service.proto."""
        desk, by = self._desk(), asking().admitted
        decisions = StandingDecisions(desk, self._server.callers)
        self._server.unread.check(context.peer())
        check_length("tool", request.tool, MAX_NAME_BYTES)
        response = pb.ListStandingApprovalsResponse()
        if request.standing_id:
            response.standing_approvals.append(self._message(await decisions.find(request.standing_id, by)))
            return response.SerializeToString()
        count, filters = page_size(request.page_size), (_METHOD, request.tool, str(request.include_closed))
        after, read, size = read_token(request.page_token, filters), 0, 0
        with unavailable_refused():
            while len(response.standing_approvals) < count and read < _MAX_READ and size < MAX_PAGE_BYTES:
                limit = min(count - len(response.standing_approvals), _PORTION)
                some = await desk.standing.some(after, is_open=not request.include_closed, limit=limit)
                if not some:
                    return response.SerializeToString()
                after, read = some[-1].standing_id, read + len(some)
                for each in some:
                    if request.tool in {"", each.subject.tool} and decisions.may_see(each, by):
                        message = self._message(each)
                        response.standing_approvals.append(message)
                        size += message.ByteSize()
        response.next_page_token = make_token(after, filters)
        return response.SerializeToString()

    async def revoke_standing(
        self, request: pb.RevokeStandingApprovalRequest, context: _Context[pb.RevokeStandingApprovalRequest]
    ) -> bytes:
        """See approval_service.proto."""
        decisions, by = StandingDecisions(self._desk(), self._server.callers), asking().admitted
        self._server.unread.check(context.peer())
        found = await decisions.revoke(request.standing_id, by, request.reason)
        return pb.RevokeStandingApprovalResponse(standing_approval=self._message(found)).SerializeToString()

    def _message(self, found: Standing) -> pb.StandingApproval:
        applies = not self._desk().change_since(found.subject)
        return standing_message(found, now_us=STEADY_CLOCK.now_us(), applies=applies)
