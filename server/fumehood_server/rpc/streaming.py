"""One call whose updates are streamed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.model.call import CallOutcome, CallRequest, CallUpdate
from fumehood_server.rpc.outcomes import update_message

if TYPE_CHECKING:
    from fumehood_server.rpc.parts import Parts

MAX_QUEUED_UPDATES = 64
"""Updates that wait for a slow reader. The oldest is dropped for a new one: the last word is worth most."""


async def stream_call(
    parts: Parts, request: CallRequest, context: grpc.aio.ServicerContext[pb.StreamToolRequest, bytes]
) -> None:
    """Run one call and write `started`, its updates and `finished`. Cancelling this cancels the call.

    Raises:
        RefusedError: the call is not admitted, and nothing was written.
    """
    updates: deque[CallUpdate] = deque(maxlen=MAX_QUEUED_UPDATES)
    outcomes: list[CallOutcome] = []
    wake = asyncio.Event()

    def on_update(update: CallUpdate) -> None:
        updates.append(update)
        wake.set()

    def on_end(outcome: CallOutcome) -> None:
        outcomes.append(outcome)
        wake.set()

    call = parts.executor.start(request, on_end, on_update)
    try:
        started = pb.CallStarted(call_id=request.call_id, tool=request.tool)
        await context.write(pb.StreamToolResponse(started=started).SerializeToString())
        while not outcomes or updates:
            while updates:
                update = update_message(request.call_id, updates.popleft())
                await context.write(pb.StreamToolResponse(update=update).SerializeToString())
            if not outcomes:
                wake.clear()
                await wake.wait()
        response = pb.StreamToolResponse()
        parts.results.fill(response.finished, outcomes[0])
        await context.write(response.SerializeToString())
    finally:
        call.cancel(parts.executor.abandonment(request))
