"""Cancels calls on a caller's word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Caller, sees_call

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

MAX_REASON_BYTES = 256


def cancel_call(server: ServerContext, request: pb.CancelCallRequest, caller: Caller) -> None:
    """Cancel the call that the request names: one of `caller`'s own, unless it is an operator.

    Raises:
        RefusedError: the request is wrong, or no such call is under way.
    """
    try:
        _cancel(server, request, caller)
    except RefusedError as exc:
        server.refusals.about_call("CancelCall", exc.refusal, request.call_id, caller.recorded)
        raise


def _cancel(server: ServerContext, request: pb.CancelCallRequest, caller: Caller) -> None:
    if not request.call_id:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "call_id is required"))
    if len(request.reason.encode()) > MAX_REASON_BYTES:
        text = f"reason is longer than {MAX_REASON_BYTES} bytes"
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, text))
    call = server.executor.find(request.call_id)
    is_seen = call is not None and sees_call(server.callers, caller, call.request.caller)
    if not is_seen or not server.executor.cancel(request.call_id, request.reason, caller.recorded):
        text = f'no call with the id "{request.call_id[:128]}" is under way'
        raise RefusedError(Refusal(RefusalReason.CALL_NOT_FOUND, text))
