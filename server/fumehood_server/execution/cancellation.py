"""What a call ends with that somebody ended."""

from __future__ import annotations

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason


def cancelled(tool: str, reason: CancelReason, note: str) -> CallError:
    """The error of a call that was cancelled. `note` is the canceller's own word and may be empty."""
    details = {"reason": reason.value}
    if note:
        details["note"] = note
    if reason is CancelReason.SHUTDOWN:
        message, retryable = f"{tool} was cancelled because the sidecar is shutting down.", True
    elif reason is CancelReason.DEADLINE:
        return CallError(
            code=Code.CANCELLED_TIMEOUT,
            message=f"The caller's deadline passed before {tool} had finished.",
            retryable=True,
            details={"bound": "caller"},
        )
    else:
        message, retryable = f"{tool} was cancelled by its caller." + (f" Reason: {note}" if note else ""), False
    return CallError(code=Code.CANCELLED_SIGNAL, message=message, retryable=retryable, details=details)
