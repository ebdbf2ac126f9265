"""Many calls over one stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import Call, Entry, UpdateReader
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallQuestion
from fumehood_server.rpc.admission import SESSION, caller_deadline
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.cancelling import cancel_call
from fumehood_server.rpc.reading import Requests
from fumehood_server.rpc.result_messages import entry_fields
from fumehood_server.rpc.send_queue import SendQueue
from fumehood_server.rpc.status import first_refusal, session_refusal

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

SessionContext = grpc.aio.ServicerContext[pb.SessionRequest, bytes]

MAX_COMBINED_REQUESTS = 128
"""In one message, of which each could be answered, though two bytes can make one."""

MAX_MESSAGE_FIELDS = 4_096
"""Fields of a long message, with those of all that it combines: as many calls that say all they can have 3,100."""

PORTION = 16
"""Requests of one message that are served in one iteration of the loop. The others wait for their turns, behind those
of other sessions."""

_CALL, _CANCEL = pb.SESSION_REQUEST_KIND_CALL, pb.SESSION_REQUEST_KIND_CANCEL
_ASKS_NOTHING = Refusal(RefusalReason.REQUEST_INVALID, "the message asks for nothing that is known here")
_NOT_COMBINED = Refusal(RefusalReason.REQUEST_INVALID, "a combined message with no request in it")
_TOO_MANY_COMBINED = Refusal(
    RefusalReason.REQUEST_INVALID, f"more than {MAX_COMBINED_REQUESTS} requests are combined in one message"
)
_COMBINED_TWICE = Refusal(RefusalReason.REQUEST_INVALID, "requests that are combined can't hold others that are")
_DRAINING = Refusal(RefusalReason.DRAINING, "the sidecar is shutting down: open a session on another one")


class _HungUpError(Exception):
    """The caller went away while something was written."""


class Session:
    """One stream: one task reads requests, one for each call waits for its outcome, and one sends what is ready."""

    def __init__(self, server: ServerContext, requests: Requests[pb.SessionRequest], context: SessionContext) -> None:
        """For the stream of `context`, whose requests are `requests`."""
        self._server = server
        self._requests = requests
        self._context = context
        self._deadline = caller_deadline(context.time_remaining())
        self._asking = asking()
        self._caller = self._asking.admitted.recorded
        self._came_by = (SESSION, context.invocation_metadata)
        self._queue = SendQueue(server.unread, self._asking.admitted.connection)
        self._calls: set[Call] = set()
        """Those without an answer."""
        self._readers: dict[Call, UpdateReader] = {}
        """Of those whose updates are wanted."""
        self._speaking: dict[Call, None] = {}
        """Those of them that have updates, in the order in which they take turns."""
        self._tasks = asyncio.TaskGroup()
        self._max_calls = server.executor.max_calls_of_one
        self._reading = True
        self._taking = False
        """Whether some requests of a message are yet to be served."""
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Serve the stream until it ends. Calls that are then under way are cancelled.

        Raises:
            RefusedError: the sidecar drains, or too much of what was answered is unread.
        """
        refusal: Refusal | None = None
        # gRPC goes on with what it was given to write until the stream is over, also when we have ended the session.
        self._context.add_done_callback(lambda _: self._queue.message_gone())  # type: ignore[arg-type] # no class
        try:
            async with self._tasks:
                reader = self._tasks.create_task(self._read())
                with self._server.drain.listen(self._wake.set):
                    refusal = _DRAINING if await self._write() else None
                reader.cancel()
        except* _HungUpError:
            pass
        except* RefusedError as group:
            refusal = first_refusal(group)
        finally:
            self._queue.close()
            for updates in self._readers.values():
                updates.close()
            for call in self._calls:
                call.abandon()
        if refusal is not None:
            raise RefusedError(refusal)

    async def _read(self) -> None:
        while True:
            try:
                request = await self._requests.read()
            except RefusedError as exc:
                self._refuse(exc.refusal)
            else:
                if request is None:
                    self._reading = False
                    self._wake.set()
                    return
                await self._take(request)
                del request  # parsed it is many times as large, and the next may never come
            if self._queue.is_full:
                await self._queue.until_not_full()

    async def _write(self) -> bool:
        """Send answers until no more can come. Returns whether it is because the sidecar drains."""
        queue, write = self._queue, self._context.write
        while True:
            while self._speaking or queue:
                self._queue_updates()
                if not queue:
                    break
                try:
                    await write(queue.take_message().SerializeToString())
                except grpc.aio.InternalError as exc:
                    raise _HungUpError from exc
                queue.message_gone()
            if not self._calls and not queue and not self._taking:
                if not self._reading:
                    return False
                if self._server.drain.begun:
                    return True
            self._wake.clear()
            await self._wake.wait()

    async def _take(self, request: pb.SessionRequest) -> None:
        kind = request.WhichOneof("request")
        if request.accepts_combined:
            self._queue.combine = True
            if kind is None:
                return
        if kind == "combined":
            await self._take_combined(request.combined)
        else:
            self._take_one(request, kind)

    async def _take_combined(self, combined: pb.SessionRequests) -> None:
        if not 0 < len(combined.requests) <= MAX_COMBINED_REQUESTS:
            self._refuse(_NOT_COMBINED if not combined.requests else _TOO_MANY_COMBINED)
            return
        self._taking = True
        for index, request in enumerate(combined.requests):
            if index and not index % PORTION:
                await self._server.reader.turn()
            self._take_one(request, request.WhichOneof("request"))
        self._taking = False
        self._wake.set()

    def _take_one(self, request: pb.SessionRequest, kind: str | None) -> None:
        if kind == "call":
            self._start(request.call, updates=request.updates)
        elif kind == "cancel":
            try:
                cancel_call(self._server, request.cancel, self._asking.still())
            except RefusedError as exc:
                self._refuse(exc.refusal, _CANCEL, request.cancel.call_id)
        else:
            self._refuse(_COMBINED_TWICE if kind == "combined" else _ASKS_NOTHING)

    def _start(self, request: pb.CallToolRequest, *, updates: bool) -> None:
        if len(self._calls) >= self._max_calls:
            # Refused and not left unread: behind it may come what cancels one of those.
            text = f"{self._max_calls} calls of this session are under way, the most that one may have: wait for one"
            refusal = Refusal(RefusalReason.TOO_MANY_CALLS, text)
            self._server.refusals.call("Session", refusal, request, self._caller)
            self._refuse(refusal, _CALL, request.call_id)
            return
        try:
            caller = self._asking.still()
            self._server.unread.check(caller.connection)
            admitted = self._server.admission.read_request(
                request, self._deadline, caller=caller, came_by=self._came_by
            )
            call = self._server.executor.start(admitted)
        except RefusedError as exc:
            self._server.refusals.call("Session", exc.refusal, request, self._caller)
            self._refuse(exc.refusal, _CALL, request.call_id)
            return
        self._calls.add(call)
        self._tasks.create_task(self._answer(call))
        if updates or admitted.takes_questions:
            self._read_updates(call, updates=updates)

    async def _answer(self, call: Call) -> None:
        try:
            outcome = await call.outcome()
        except RefusedError as exc:
            self._calls.discard(call)
            self._close_updates(call)
            self._server.refusals.read_call("Session", exc.refusal, call.request)
            self._refuse(exc.refusal, _CALL, call.request.call_id)
            return
        self._calls.discard(call)
        self._close_updates(call)
        response = pb.SessionResponse()
        self._server.results.fill(response.finished, outcome)
        self._send(response)

    def _read_updates(self, call: Call, *, updates: bool) -> None:
        def wake() -> None:
            self._speaking[call] = None
            self._wake.set()

        log = call.updates
        reader = self._readers[call] = log.read(wake) if updates else log.read_questions(wake)
        if reader.ready:
            wake()

    def _queue_updates(self) -> None:
        """Queue updates while there is room, of each call in turn. What has none waits, and its tool with it."""
        while self._speaking and self._queue.takes_updates:
            call = next(iter(self._speaking))
            del self._speaking[call]
            reader = self._readers[call]
            if reader.ready:
                self._queue_update(call, reader.take())
            if reader.ready:
                self._speaking[call] = None

    def _close_updates(self, call: Call) -> None:
        """Queue what is left of a call's updates, before its answer."""
        reader = self._readers.pop(call, None)
        if reader is not None:
            self._speaking.pop(call, None)
            while reader.ready:
                self._queue_update(call, reader.take())
            reader.close()

    def _queue_update(self, call: Call, entry: Entry) -> None:
        response = pb.SessionResponse(**entry_fields(call.request.call_id, entry))
        if isinstance(entry, CallQuestion):  # which is not dropped: somebody waits for its answer
            self._queue.put_answer(response)
        else:
            self._queue.put_update(response)

    def _refuse(
        self,
        refusal: Refusal,
        kind: pb.SessionRequestKind.ValueType = pb.SESSION_REQUEST_KIND_UNSPECIFIED,
        call_id: str = "",
    ) -> None:
        if self._server.metrics is not None:
            self._server.metrics.refusals.add(refusal.reason.value)
        self._send(pb.SessionResponse(refused=session_refusal(refusal, kind, call_id)))

    def _send(self, response: pb.SessionResponse) -> None:
        self._queue.put_answer(response)
        self._wake.set()
