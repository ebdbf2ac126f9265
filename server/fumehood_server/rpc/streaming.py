"""One call whose updates are streamed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import JoinedCall
from fumehood_server.errors import RefusedError
from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.rpc.hang_up import hang_ups_end_it
from fumehood_server.rpc.result_messages import entry_fields
from fumehood_server.rpc.unread import STREAM_BYTES

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext


async def stream_call(
    server: ServerContext,
    request: CallRequest,
    after: int,
    context: grpc.aio.ServicerContext[pb.StreamToolRequest, bytes],
) -> None:
    """Run or join one call, and write `started`, its updates beyond `after` and `finished`.

    Cancelling this cancels a call that was run, unless that goes on without its caller.

    Raises:
        RefusedError: the call is not admitted, and nothing was written; or there is no room for its answer.
    """
    wake = asyncio.Event()
    try:
        call = server.executor.start(request)
    except RefusedError as exc:
        server.refusals.read_call("StreamTool", exc.refusal, request)
        raise

    updates = call.updates.read(wake.set, after)

    async def ended() -> CallOutcome | RefusedError:
        try:
            return await call.outcome()
        except RefusedError as exc:
            return exc
        finally:
            wake.set()

    try:
        with hang_ups_end_it():
            joined = isinstance(call, JoinedCall)
            started = pb.CallStarted(call_id=request.call_id, tool=request.tool, joined=joined)
            started.missed_updates = updates.missed if joined else 0
            await context.write(pb.StreamToolResponse(started=started).SerializeToString())
            async with asyncio.TaskGroup() as tasks:
                end = tasks.create_task(ended())
                while not end.done() or updates.ready:
                    while updates.ready:
                        await server.pacer.turn()
                        if updates.ready:  # a question that was answered meanwhile is told to nobody
                            response = pb.StreamToolResponse(**entry_fields(request.call_id, updates.take()))
                            await context.write(response.SerializeToString())
                    if not end.done():
                        wake.clear()
                        await wake.wait()
            outcome = end.result()
            if isinstance(outcome, RefusedError):
                server.refusals.read_call("StreamTool", outcome.refusal, request)
                raise outcome
            await _write_finished(server, outcome, context)
    finally:
        updates.close()
        call.abandon()


async def _write_finished(
    server: ServerContext, outcome: CallOutcome, context: grpc.aio.ServicerContext[pb.StreamToolRequest, bytes]
) -> None:
    response = pb.StreamToolResponse()
    server.results.fill(response.finished, outcome)
    answer = response.SerializeToString()
    with server.unread.held(context.peer(), len(answer) + STREAM_BYTES):
        await context.write(answer)
