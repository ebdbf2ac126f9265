"""One call whose updates are streamed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import RefusedError
from fumehood_server.model.call import CallOutcome, CallRequest, CallRetry, CallUpdate
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.outcomes import retry_message, update_message
from fumehood_server.rpc.unread import STREAM_BYTES

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

MAX_QUEUED_UPDATES = 64
"""Updates that wait for a slow reader. The oldest is dropped for a new one: the last word is worth most."""

MAX_QUEUED_UPDATE_CHARS = 256 * 1024
"""Of their text together, where there is more than one."""


async def stream_call(
    server: ServerContext, request: CallRequest, context: grpc.aio.ServicerContext[pb.StreamToolRequest, bytes]
) -> None:
    """Run one call and write `started`, its updates and `finished`. Cancelling this cancels the call.

    Raises:
        RefusedError: the call is not admitted, and nothing was written; or there is no room for its answer.
    """
    updates = _LastUpdates()
    wake = asyncio.Event()

    def on_update(update: CallUpdate | CallRetry) -> None:
        updates.put(update)
        wake.set()

    try:
        call = server.executor.start(request, on_update)
    except RefusedError as exc:
        server.refusals.admitted_call("StreamTool", exc.refusal, request)
        raise

    async def ended() -> CallOutcome | RefusedError:
        try:
            return await call.outcome()
        except RefusedError as exc:
            return exc
        finally:
            wake.set()

    try:
        with hang_ups_end_it():
            started = pb.CallStarted(call_id=request.call_id, tool=request.tool)
            await context.write(pb.StreamToolResponse(started=started).SerializeToString())
            async with asyncio.TaskGroup() as tasks:
                end = tasks.create_task(ended())
                while not end.done() or updates:
                    while updates:
                        await server.pacer.turn()
                        await context.write(_event(request.call_id, updates.take()).SerializeToString())
                    if not end.done():
                        wake.clear()
                        await wake.wait()
            outcome = end.result()
            if isinstance(outcome, RefusedError):
                server.refusals.admitted_call("StreamTool", outcome.refusal, request)
                raise outcome
            await _write_finished(server, outcome, context)
    finally:
        call.abandon()


def _event(call_id: str, update: CallUpdate | CallRetry) -> pb.StreamToolResponse:
    if isinstance(update, CallRetry):
        return pb.StreamToolResponse(retry=retry_message(call_id, update))
    return pb.StreamToolResponse(update=update_message(call_id, update))


async def _write_finished(
    server: ServerContext, outcome: CallOutcome, context: grpc.aio.ServicerContext[pb.StreamToolRequest, bytes]
) -> None:
    response = pb.StreamToolResponse()
    server.results.fill(response.finished, outcome)
    answer, caller = response.SerializeToString(), context.peer()
    size = len(answer) + STREAM_BYTES
    server.unread.add(caller, size)
    try:
        await context.write(answer)
    finally:
        server.unread.remove(caller, size)


class _LastUpdates:
    """The updates that wait for the reader: the last ones, so many as there is room for."""

    __slots__ = ("_chars", "_updates")

    def __init__(self) -> None:
        self._updates: deque[CallUpdate | CallRetry] = deque()
        self._chars = 0

    def __len__(self) -> int:
        return len(self._updates)

    def put(self, update: CallUpdate | CallRetry) -> None:
        """Queue one, and drop the oldest for it where there is no room."""
        self._updates.append(update)
        self._chars += _chars(update)
        while len(self._updates) > MAX_QUEUED_UPDATES or (
            self._chars > MAX_QUEUED_UPDATE_CHARS and len(self._updates) > 1
        ):
            self.take()

    def take(self) -> CallUpdate | CallRetry:
        """The oldest. There must be one."""
        update = self._updates.popleft()
        self._chars -= _chars(update)
        return update


def _chars(update: CallUpdate | CallRetry) -> int:
    if isinstance(update, CallRetry):
        return len(update.error.message)
    return len(update.message) + len(update.data_json)
