"""`fumehood.v1.ApprovalService`."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeVar

import grpc
from fumehood.v1 import approval_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.approvals import Approval, Choice
from fumehood_server.policy import ApprovalDesk, Decisions
from fumehood_server.policy.decisions import unavailable_refused
from fumehood_server.rpc.admission import MAX_NAME_BYTES
from fumehood_server.rpc.approval_messages import CHOICES, approval_message
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.message_stream import follow_messages
from fumehood_server.rpc.paging import MAX_PAGE_BYTES, make_token, page_size, read_token
from fumehood_server.rpc.reading import Service
from fumehood_server.rpc.standing_approvals import StandingMethods
from fumehood_server.rpc.standing_messages import MAX_FIELDS, asked_terms
from fumehood_server.rpc.stream_slots import StreamSlots

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["ApprovalService"].full_name

MAX_WATCHERS = 64
MAX_WATCHERS_OF_CONNECTION = 16
_PORTION = 64
_CHOICES = {number: choice for choice, number in CHOICES.items()}

_Request = TypeVar("_Request")
_Context = grpc.aio.ServicerContext[_Request, bytes]


class ApprovalService:
    """The methods. Each returns or writes serialised messages, or raises RefusedError."""

    def __init__(self, server: ServerContext) -> None:
        """Serve the approvals of this sidecar, where it keeps any."""
        self._server = server
        self._standing = StandingMethods(server, self._desk)
        self._watchers = StreamSlots("watchers of approvals", total=MAX_WATCHERS, connection=MAX_WATCHERS_OF_CONNECTION)

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        reader = self._server.reader
        methods = {
            "ListApprovals": reader.unary(self.list_approvals, pb.ListApprovalsRequest, waits=True),
            "WatchApprovals": reader.streaming(self.watch_approvals, pb.WatchApprovalsRequest),
            "DecideApproval": reader.unary(
                self.decide_approval, pb.DecideApprovalRequest, max_fields=MAX_FIELDS, waits=True
            ),
            **self._standing.methods(),
        }
        return Service(SERVICE, methods)

    async def list_approvals(
        self, request: pb.ListApprovalsRequest, context: _Context[pb.ListApprovalsRequest]
    ) -> bytes:
        """See approval_service.proto, as for every method."""
        desk, by = self._desk(), asking().admitted
        decisions = Decisions(desk, self._server.callers)
        self._server.unread.check(context.peer())
        _check_name("tool", request.tool)
        response = pb.ListApprovalsResponse()
        with unavailable_refused():
            if request.approval_id:
                found = await decisions.find(request.approval_id, by)
                response.approvals.append(_message(desk, found))
                return response.SerializeToString()
            count, filters = page_size(request.page_size), (SERVICE, request.tool)
            after = int(read_token(request.page_token, filters) or -1)
            size = 0
            while len(response.approvals) < count and size < MAX_PAGE_BYTES:
                limit = min(count - len(response.approvals), _PORTION)
                after, some = await desk.open(after, limit=limit)
                if not some:
                    return response.SerializeToString()
                for each in some:
                    if request.tool in {"", each.asked.tool} and decisions.may_see(each, by):
                        response.approvals.append(_message(desk, each))
                        size += len(each.arguments_json) + len(each.asked_json)
            response.next_page_token = make_token(str(after), filters)
        return response.SerializeToString()

    async def watch_approvals(
        self, request: pb.WatchApprovalsRequest, context: _Context[pb.WatchApprovalsRequest]
    ) -> None:
        """Open ones, and then changes."""
        desk, who = self._desk(), asking()
        decisions = Decisions(desk, self._server.callers)
        _check_name("tool", request.tool)

        def is_wanted(approval: Approval) -> bool:
            return request.tool in {"", approval.asked.tool} and decisions.may_see(approval, who.still())

        with self._watchers.take(context.peer()):
            await follow_messages(self._server, _watched(desk, is_wanted), context, unavailable_refused())

    async def decide_approval(
        self, request: pb.DecideApprovalRequest, context: _Context[pb.DecideApprovalRequest]
    ) -> bytes:
        """Approve, deny or withdraw."""
        desk, by = self._desk(), asking().admitted
        decisions = Decisions(desk, self._server.callers)
        self._server.unread.check(context.peer())
        choice = _CHOICES.get(request.choice)
        if choice is None:
            raise _invalid("choice is required: APPROVE, DENY or WITHDRAW")
        text, edit = request.arguments_json, None
        if text:
            if choice is not Choice.APPROVE:
                raise _invalid("arguments_json is for an approval")
            edit = functools.partial(self._server.executor.edit, arguments_json=text)
        standing = asked_terms(request.standing) if request.HasField("standing") else None
        if standing is not None and (text or choice is not Choice.APPROVE):
            raise _invalid("standing is for an approval, and of arguments as they are")
        decided = await decisions.decide(
            request.approval_id,
            choice,
            by,
            digest=request.digest,
            reason=request.reason,
            edit=edit,
            standing=standing,
        )
        return pb.DecideApprovalResponse(approval=_message(desk, decided)).SerializeToString()

    def _desk(self) -> ApprovalDesk:
        desk = self._server.approvals
        if desk is None:
            text = 'this sidecar keeps no approvals: its operator has set [journal] store = "off" in fumehood.toml'
            raise RefusedError(Refusal(RefusalReason.JOURNAL_OFF, text))
        return desk


def _message(desk: ApprovalDesk, approval: Approval) -> pb.Approval:
    return approval_message(approval, desk.void_reason(approval))


async def _watched(desk: ApprovalDesk, is_wanted: Callable[[Approval], bool]) -> AsyncGenerator[bytes, None]:
    """Serialised messages. Raises JournalUnavailableError."""
    seen, after = await desk.size() - 1, -1
    while after < seen:
        after, some = await desk.open(after, limit=_PORTION)
        for each in some:
            if is_wanted(each):
                yield pb.WatchApprovalsResponse(approval=_message(desk, each)).SerializeToString()
        if not some:
            break
    seen = max(seen, after)
    yield pb.WatchApprovalsResponse(is_current=True).SerializeToString()
    while True:
        seen, some = await desk.changed(seen)
        for each in some:
            if is_wanted(each):
                yield pb.WatchApprovalsResponse(approval=_message(desk, each)).SerializeToString()


def _check_name(name: str, value: str) -> None:
    if len(value.encode()) > MAX_NAME_BYTES:
        raise _invalid(f"{name} is longer than {MAX_NAME_BYTES} bytes")


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
