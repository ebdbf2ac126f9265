"""The call of a unary request: admitted or refused, and waited for until its caller leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from fumehood_server.errors import RefusedError
from fumehood_server.rpc.admission import caller_deadline
from fumehood_server.rpc.authentication import asking

if TYPE_CHECKING:
    from fumehood.v1 import tool_service_pb2 as pb

    from fumehood_server.calls import Call, JoinedCall
    from fumehood_server.model.call import CallOutcome
    from fumehood_server.rpc.server_context import ServerContext


def start_call(
    server: ServerContext, method: str, request: pb.CallToolRequest, context: grpc.aio.ServicerContext[Any, bytes]
) -> Call | JoinedCall:
    """Start the call that a request asks for. `method` is the request's, as gRPC names it.

    Raises:
        RefusedError: the request is wrong in itself, or the call isn't admitted.
    """
    caller = asking().admitted
    try:
        server.unread.check(caller.connection)
        deadline, came_by = caller_deadline(context.time_remaining()), (method, context.invocation_metadata)
        return server.executor.start(server.admission.read_request(request, deadline, caller=caller, came_by=came_by))
    except RefusedError as exc:
        server.refusals.call(_short(method), exc.refusal, request, caller.recorded)
        raise


async def call_outcome(server: ServerContext, method: str, call: Call | JoinedCall) -> CallOutcome:
    """The call's outcome. Cancelling this, as gRPC does when the caller has gone away, abandons the call.

    Raises:
        RefusedError: it was not to be run: see `run_call`.
    """
    try:
        return await call.outcome()
    except RefusedError as exc:
        server.refusals.read_call(_short(method), exc.refusal, call.request)
        raise
    except asyncio.CancelledError:
        call.abandon()
        raise


def _short(method: str) -> str:
    return method.rpartition("/")[2]
