"""One call whose updates are streamed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.model.call import CallOutcome, CallRequest, CallUpdate
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.outcomes import update_message

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

MAX_QUEUED_UPDATES = 64
"""Updates that wait for a slow reader. The oldest is dropped for a new one: the last word is worth most."""


async def stream_call(
    server: ServerContext, request: CallRequest, context: grpc.aio.ServicerContext[pb.StreamToolRequest, bytes]
) -> None:
    """Run one call and write `started`, its updates and `finished`. Cancelling this cancels the call.

    Raises:
        RefusedError: the call is not admitted, and nothing was written.
    """
    updates: deque[CallUpdate] = deque(maxlen=MAX_QUEUED_UPDATES)
    wake = asyncio.Event()

    def on_update(update: CallUpdate) -> None:
        updates.append(update)
        wake.set()

    call = server.executor.start(request, on_update)

    async def ended() -> CallOutcome:
        outcome = await call.outcome()
        wake.set()
        return outcome

    try:
        with hang_ups_end_it():
            started = pb.CallStarted(call_id=request.call_id, tool=request.tool)
            await context.write(pb.StreamToolResponse(started=started).SerializeToString())
            async with asyncio.TaskGroup() as tasks:
                end = tasks.create_task(ended())
                while not end.done() or updates:
                    while updates:
                        update = update_message(request.call_id, updates.popleft())
                        await context.write(pb.StreamToolResponse(update=update).SerializeToString())
                    if not end.done():
                        wake.clear()
                        await wake.wait()
            response = pb.StreamToolResponse()
            server.results.fill(response.finished, end.result())
            await context.write(response.SerializeToString())
    finally:
        call.abandon()
