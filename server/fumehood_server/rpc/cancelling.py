"""Cancels calls on a caller's word."""

from __future__ import annotations

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import Executor
from fumehood_server.errors import Refusal, RefusalReason, RefusedError

MAX_REASON_BYTES = 256


def cancel_call(executor: Executor, request: pb.CancelCallRequest) -> None:
    """Cancel the call that the request names.

    Raises:
        RefusedError: the request is wrong, or no such call is under way.
    """
    if not request.call_id:
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, "call_id is required"))
    if len(request.reason.encode()) > MAX_REASON_BYTES:
        text = f"reason is longer than {MAX_REASON_BYTES} bytes"
        raise RefusedError(Refusal(RefusalReason.REQUEST_INVALID, text))
    if not executor.cancel(request.call_id, request.reason):
        text = f'no call with the id "{request.call_id[:128]}" is under way'
        raise RefusedError(Refusal(RefusalReason.CALL_NOT_FOUND, text))
