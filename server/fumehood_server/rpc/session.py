"""Many calls over one stream."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import ActiveCall, CallState
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallOutcome, CallUpdate
from fumehood_server.rpc.admission import caller_deadline
from fumehood_server.rpc.answers import Answers
from fumehood_server.rpc.cancelling import cancel_call
from fumehood_server.rpc.outcomes import update_message
from fumehood_server.rpc.parsing import NOT_UNDERSTOOD
from fumehood_server.rpc.status import abort, refusal_error, status_number

if TYPE_CHECKING:
    from fumehood_server.rpc.parts import Parts

SessionContext = grpc.aio.ServicerContext[pb.SessionRequest, bytes]

MAX_COMBINED_REQUESTS = 128
"""In one message, of which each could be answered, though two bytes can make one. It is parsed by then: gRPC's own
bound on the size of a message (2 MiB) is what bounds that, to some 40 ms and 40 MiB."""

_CALL, _CANCEL = pb.SESSION_REQUEST_KIND_CALL, pb.SESSION_REQUEST_KIND_CANCEL
_ASKS_NOTHING = Refusal(RefusalReason.REQUEST_INVALID, "the message asks for nothing that is known here")
_NOT_COMBINED = Refusal(RefusalReason.REQUEST_INVALID, "a combined message with no request in it")
_TOO_MANY_COMBINED = Refusal(
    RefusalReason.REQUEST_INVALID, f"more than {MAX_COMBINED_REQUESTS} requests are combined in one message"
)
_COMBINED_TWICE = Refusal(RefusalReason.REQUEST_INVALID, "requests that are combined can't hold others that are")
_DRAINING = Refusal(RefusalReason.DRAINING, "the sidecar is shutting down: open a session on another one")


class Session:
    """One stream. A request is taken as far as it goes without waiting; one writer sends whatever is ready.

    No task is made for a call: its answer is queued in the turn of the loop in which it ended.
    """

    def __init__(self, parts: Parts, context: SessionContext) -> None:
        """For the stream of `context`."""
        self._parts = parts
        self._context = context
        self._deadline = caller_deadline(context.time_remaining())
        self._answers = Answers()
        self._calls: dict[str, ActiveCall] = {}
        self._max_calls = parts.executor.max_calls_of_one
        self._reading = True
        self._wake: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Serve the stream until it ends. Calls that are then under way are cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read())
                with self._parts.drain.listen(self._wake_writer):
                    drained = await self._write()
                reader.cancel()
            if drained:
                await abort(self._context, _DRAINING)
        finally:
            self._answers.close()
            for call in tuple(self._calls.values()):
                call.cancel(self._parts.executor.abandonment(call.request))

    async def _read(self) -> None:
        context = self._context
        while True:
            request = await context.read()
            if request is grpc.aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
                self._reading = False
                self._wake_writer()
                return
            self._take(request)
            del request  # parsed it is many times as large, and the next may never come
            if self._answers.are_many:
                await self._answers.fewer()

    async def _write(self) -> bool:
        """Send answers until no more can come. Returns whether it is because the sidecar drains."""
        answers, write, loop = self._answers, self._context.write, asyncio.get_running_loop()
        while True:
            while answers:
                try:
                    await write(answers.take().SerializeToString())
                except grpc.aio.InternalError:  # whom it is for went away meanwhile
                    return False
            if not self._calls and not answers:
                if not self._reading:
                    return False
                if self._parts.drain.begun:
                    return True
            self._wake = loop.create_future()
            await self._wake

    def _take(self, request: pb.SessionRequest | object) -> None:
        if not isinstance(request, pb.SessionRequest):
            self._refuse(NOT_UNDERSTOOD)
            return
        kind = request.WhichOneof("request")
        if request.accepts_combined:
            self._answers.combine = True
            if kind is None:
                return
        if kind == "combined":
            self._take_combined(request.combined)
        else:
            self._take_one(request, kind)

    def _take_combined(self, combined: pb.SessionRequests) -> None:
        if not 0 < len(combined.requests) <= MAX_COMBINED_REQUESTS:
            self._refuse(_NOT_COMBINED if not combined.requests else _TOO_MANY_COMBINED)
            return
        for request in combined.requests:
            self._take_one(request, request.WhichOneof("request"))

    def _take_one(self, request: pb.SessionRequest, kind: str | None) -> None:
        if kind == "call":
            self._start(request.call, updates=request.updates)
        elif kind == "cancel":
            try:
                cancel_call(self._parts.executor, request.cancel)
            except RefusedError as exc:
                self._refuse(exc.refusal, _CANCEL, request.cancel.call_id)
        else:
            self._refuse(_COMBINED_TWICE if kind == "combined" else _ASKS_NOTHING)

    def _start(self, request: pb.CallToolRequest, *, updates: bool) -> None:
        if len(self._calls) >= self._max_calls:
            # Refused and not left unread: behind it may come what cancels one of those.
            text = f"{self._max_calls} calls of this session are under way, the most that one may have: wait for one"
            self._refuse(Refusal(RefusalReason.TOO_MANY_CALLS, text), _CALL, request.call_id)
            return
        try:
            admitted = self._parts.admission.read(request, self._deadline)
            on_update = functools.partial(self._update, admitted.call_id) if updates else None
            call = self._parts.executor.start(admitted, self._ended, on_update)
        except RefusedError as exc:
            self._refuse(exc.refusal, _CALL, request.call_id)
            return
        if call.state is not CallState.ENDED:
            self._calls[admitted.call_id] = call

    def _ended(self, outcome: CallOutcome) -> None:
        self._calls.pop(outcome.call_id, None)
        response = pb.SessionResponse()
        self._parts.results.fill(response.finished, outcome)
        self._queue(response)

    def _update(self, call_id: str, update: CallUpdate) -> None:
        if self._answers.takes_updates:
            self._answers.put_update(pb.SessionResponse(update=update_message(call_id, update)))
            self._wake_writer()

    def _refuse(
        self,
        refusal: Refusal,
        kind: pb.SessionRequestKind.ValueType = pb.SESSION_REQUEST_KIND_UNSPECIFIED,
        call_id: str = "",
    ) -> None:
        refused = pb.SessionRefusal(
            call_id=call_id[:128], status_code=status_number(refusal), error=refusal_error(refusal), kind=kind
        )
        self._queue(pb.SessionResponse(refused=refused))

    def _queue(self, response: pb.SessionResponse) -> None:
        self._answers.put(response)
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
