"""What the journal is told of requests about calls that are refused before anything ran, within a rate."""

from __future__ import annotations

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.bounded_events import BoundedEvents
from fumehood_server.errors import Refusal, RefusalReason
from fumehood_server.model.call import CallRequest
from fumehood_server.model.events import About
from fumehood_server.model.journal import Journal
from fumehood_server.model.operation_events import RequestRefused, RequestsRefused
from fumehood_server.model.text import printable

BURST = 64
PER_SECOND = 0.1
"""Refusals for one reason that are recorded one by one: 9,000 a day, some 7 MB. What is more is counted."""
_MAX_ID_CHARS = 128
_MAX_NAME_CHARS = 64
_MAX_MESSAGE_CHARS = 256


class RefusalRecords:
    """Records refusals. For one event loop.

    What a refused request says of itself may be wrong, so an event of it is no event of the call that it names.
    """

    def __init__(self, journal: Journal) -> None:
        """Nothing was refused yet."""
        self._journal = journal
        self._reasons: dict[RefusalReason, BoundedEvents] = {}

    def call(self, method: str, refusal: Refusal, request: pb.CallToolRequest, caller: str) -> None:
        """The request of a call was refused: it can't be read, or the call was not admitted."""
        if self._takes(refusal):
            context = request.context
            about = _about(context.request_id, request.tool)
            self._journal.record(_event(method, refusal, request.call_id, caller), about)

    def read_call(self, method: str, refusal: Refusal, request: CallRequest) -> None:
        """The same, once the request was read; or the call was found to be another one's repetition."""
        if self._takes(refusal):
            about = _about(request.context.request_id, request.tool)
            self._journal.record(_event(method, refusal, request.call_id, request.caller), about)

    def about_call(self, method: str, refusal: Refusal, call_id: str, caller: str) -> None:
        """A request about a call was refused."""
        if self._takes(refusal):
            self._journal.record(_event(method, refusal, call_id, caller))

    def close(self) -> None:
        """Record what is counted."""
        for each in self._reasons.values():
            each.close()

    def _takes(self, refusal: Refusal) -> bool:
        if not self._journal.recording:
            return False
        reason = self._reasons.get(refusal.reason)
        if reason is None:
            name = refusal.reason.value
            reason = self._reasons[refusal.reason] = BoundedEvents(
                self._journal,
                lambda count, since_us: RequestsRefused(reason=name, count=count, since_us=since_us),
                burst=BURST,
                per_second=PER_SECOND,
            )
        return reason.takes()


def _event(method: str, refusal: Refusal, call_id: str, caller: str) -> RequestRefused:
    return RequestRefused(
        method=method,
        reason=refusal.reason.value,
        message=printable(refusal.message)[:_MAX_MESSAGE_CHARS],
        call_id=printable(call_id[:_MAX_ID_CHARS]),
        caller=caller,
    )


def _about(run_id: str, tool: str) -> About:
    return About(run_id=printable(run_id[:_MAX_ID_CHARS]), tool=printable(tool[:_MAX_NAME_CHARS]))
