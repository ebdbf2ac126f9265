"""`fumehood.v1.OrchestrationService`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import grpc
from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.orchestration.messages import Role
from fumehood_server.orchestration.response import SystemResponse
from fumehood_server.orchestration.run_handle import RunHandle
from fumehood_server.rpc.admission import caller_deadline
from fumehood_server.rpc.authentication import asking
from fumehood_server.rpc.message_stream import send_messages
from fumehood_server.rpc.reading import Service
from fumehood_server.rpc.run_messages import happening_message, response_message
from fumehood_server.rpc.run_requests import MAX_FIELDS, read_messages, read_run
from fumehood_server.rpc.stream_slots import StreamSlots

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

SERVICE = pb.DESCRIPTOR.services_by_name["OrchestrationService"].full_name
_RUN, _STREAM_RUN = f"{SERVICE}/Run", f"{SERVICE}/StreamRun"

MAX_STREAMS = 512
MAX_STREAMS_OF_CONNECTION = 256
MAX_JOINED_STREAMS = 64
MAX_JOINED_STREAMS_OF_CONNECTION = 16
"""That follow one run which another one began: each piece that its model says is sent to each of them."""
_LEFT = "its caller has gone away, or its deadline has passed"
_STOPPED = "it was stopped by CancelRun"
_KINDS = {
    pb.STEER_KIND_UNSPECIFIED: "steer",
    pb.STEER_KIND_STEER: "steer",
    pb.STEER_KIND_FOLLOW_UP: "follow_up",
}
_STEERING_ROLES = frozenset({Role.USER, Role.SYSTEM})
_Context = grpc.aio.ServicerContext[Any, bytes]


class OrchestrationService:
    """The methods. Each returns or writes serialised messages, or raises RefusedError."""

    def __init__(self, server: ServerContext) -> None:
        """Serve runs of this sidecar."""
        self._server = server
        self._streams = StreamSlots("streams of runs", total=MAX_STREAMS, connection=MAX_STREAMS_OF_CONNECTION)
        self._joined: WeakKeyDictionary[RunHandle, StreamSlots] = WeakKeyDictionary()

    def service(self) -> Service:
        """The service, with what its requests may hold."""
        reader = self._server.reader
        methods = {
            "Run": reader.unary(self.run, pb.RunRequest, max_fields=MAX_FIELDS),
            "StreamRun": reader.streaming(self.stream_run, pb.StreamRunRequest, max_fields=MAX_FIELDS),
            "SteerRun": reader.unary(self.steer_run, pb.SteerRunRequest, max_fields=MAX_FIELDS, waits=True),
            "CancelRun": reader.unary(self.cancel_run, pb.CancelRunRequest, waits=True),
        }
        return Service(SERVICE, methods)

    async def run(self, request: pb.RunRequest, context: _Context) -> bytes:
        """See orchestration_service.proto, as for every method."""
        self._server.unread.check(context.peer())
        run, joined = self._start(request.request, context)
        del request  # the run holds what it needs of it, and the rest can be large
        try:
            with self._server.reader.for_outcomes.take(asking()) if joined else contextlib.nullcontext():
                response = await run.response()
        except asyncio.CancelledError:  # gRPC's: its caller has gone away
            _leave(run, joined=joined)
            raise
        return pb.RunResponse(response=response_message(response)).SerializeToString()

    async def stream_run(self, request: pb.StreamRunRequest, context: _Context) -> None:
        """Run it, and tell what happens."""
        self._server.unread.check(context.peer())
        with self._streams.take(context.peer()):
            run, joined = self._start(request.request, context, streamed=True, join_only=request.join_only)
            after = request.after_sequence if joined else 0  # what else it counts is another sidecar's
            del request  # likewise
            try:
                with self._joining(run).take(context.peer()) if joined else contextlib.nullcontext():
                    messages = _messages(run, after, joined=joined)
                    await send_messages(self._server, messages, context)
            finally:
                _leave(run, joined=joined)

    async def steer_run(self, request: pb.SteerRunRequest, _context: _Context) -> bytes:
        """Give a run further messages."""
        kind = _KINDS.get(request.kind)
        if kind is None:
            raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "kind: there is no such kind"))
        said = read_messages(request.messages, "messages", _STEERING_ROLES)
        caller = asking().admitted
        found = self._find(request.request_id)
        try:
            await found.steer(said, kind, caller)
        except JournalUnavailableError as exc:
            raise RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, str(exc))) from exc
        return pb.SteerRunResponse().SerializeToString()

    async def cancel_run(self, request: pb.CancelRunRequest, _context: _Context) -> bytes:
        """Stop a run."""
        found = self._find(request.request_id)
        resumable = found.stop(_STOPPED, resumable=request.resumable)
        with contextlib.suppress(RefusedError):  # that it goes on when its request is sent again
            await found.response()
        return pb.CancelRunResponse(resumable=resumable).SerializeToString()

    def _joining(self, run: RunHandle) -> StreamSlots:
        found = self._joined.get(run)
        if found is None:
            total, connection = MAX_JOINED_STREAMS, MAX_JOINED_STREAMS_OF_CONNECTION
            found = self._joined[run] = StreamSlots("streams that join this run", total=total, connection=connection)
        return found

    def _find(self, request_id: str) -> RunHandle:
        found = self._server.orchestrator.find(request_id, asking().admitted)
        if found is None:
            text = f'no run of the id "{request_id[:64]}" is under way'
            raise RefusedError(Refusal(RefusalReason.RUN_NOT_FOUND, text))
        return found

    def _start(
        self, request: pb.SystemRequest, context: _Context, *, streamed: bool = False, join_only: bool = False
    ) -> tuple[RunHandle, bool]:
        config = self._server.config().orchestration
        read = read_run(
            request,
            caller_deadline(context.time_remaining()),
            caller=asking().admitted,
            max_iterations=config.max_iterations,
            vendor_options=config.vendor_options,
            grammars=config.grammars,
        )
        came_by = (_STREAM_RUN if streamed else _RUN, context.invocation_metadata)
        correlation, trace = self._server.admission.correlation(read.context, came_by)
        return self._server.orchestrator.start(replace(read, context=correlation, trace=trace), join_only=join_only)


def _leave(run: RunHandle, *, joined: bool) -> None:
    """End a run whose caller has gone away, unless it goes on then. One that another stream began is that one's."""
    if not joined and not run.request.continues:
        run.cancel(_LEFT)


async def _messages(run: RunHandle, after: int, *, joined: bool) -> AsyncGenerator[bytes, None]:
    """All that happens after a sequence number, as it happens, and the response.

    Raises:
        RefusedError: it was not to be run.
    """
    wake = asyncio.Event()

    async def ended() -> SystemResponse | RefusedError:
        try:
            return await run.response()
        except RefusedError as exc:
            return exc
        finally:
            wake.set()

    run.log.follow(wake.set)
    end = asyncio.ensure_future(ended())
    try:
        is_told = False
        while True:
            wake.clear()
            if not is_told and (run.run is not None or end.done()):
                started = pb.RunStarted(request_id=run.request.request_id, joined=joined, resumed=run.resumed)
                is_told = True
                if not (end.done() and isinstance(end.result(), RefusedError)):
                    yield pb.StreamRunResponse(started=started).SerializeToString()
            while (found := run.log.after(after)) is not None:
                after, happening = found
                yield happening_message(after, happening).SerializeToString()
            if end.done():
                break
            await wake.wait()
    finally:
        run.log.leave(wake.set)
        end.cancel()
    response = end.result()
    if isinstance(response, RefusedError):
        raise response
    yield pb.StreamRunResponse(finished=response_message(response)).SerializeToString()
