"""What a call ends with that somebody ended."""

from __future__ import annotations

from dataclasses import replace

from fumehood_sandbox import Level

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason, InvocationResult

_TOLD_BY_WORKER = ("ended_by", "outcome_unknown", "tool_finished")
"""Details that a worker adds about how it ended a call."""


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


def stopped(tool: RegisteredTool, verdict: CallError, result: InvocationResult) -> CallError:
    """What a dispatched call ends with that was ended early: the verdict, and what its worker tells of the end.

    A tool that may have changed something is not to be called again unseen, whatever ended it.
    """
    told = result.error.details if result.error is not None else {"ended_by": "result"}
    details = {**verdict.details, **{key: told[key] for key in _TOLD_BY_WORKER if key in told}}
    repeatable = tool.definition.idempotent or tool.definition.side_effects in (Level.NONE, Level.READ)
    message = verdict.message
    if details.get("outcome_unknown"):
        message += " Nobody knows whether it took effect."
    return replace(verdict, message=message, details=details, retryable=verdict.retryable and repeatable)
