"""The errors of calls that were cancelled or met a deadline, before and after they were sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import safe_to_repeat
from fumehood_server.model.worker import CancelReason

_TOLD_BY_WORKER = ("ended_by", "outcome_unknown", "tool_finished", "mid_frame", "violation")
"""Details that a worker adds about how it ended a call."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The first word that ended a call."""

    tool: str
    reason: CancelReason
    note: str = ""
    """The canceller's own word. May be empty."""
    by: str = ""
    """Who cancelled it, as the journal calls callers. Empty: nobody did."""

    def error(self) -> CallError:
        """What the call ends with."""
        details = {"reason": self.reason.value}
        if self.note:
            details["note"] = self.note
        if self.reason is CancelReason.SHUTDOWN:
            message, retryable = f"{self.tool} was cancelled because the sidecar is shutting down.", True
        elif self.reason is CancelReason.DEADLINE:
            return CallError(
                code=Code.CANCELLED_TIMEOUT,
                message=f"The caller's deadline passed before {self.tool} had finished.",
                retryable=True,
                details={"bound": "caller"},
            )
        else:
            why = f" Reason: {self.note}" if self.note else ""
            message, retryable = f"{self.tool} was cancelled.{why}", False
        return CallError(code=Code.CANCELLED_SIGNAL, message=message, retryable=retryable, details=details)


def after_dispatch(tool: RegisteredTool, error: CallError, told: Mapping[str, Any]) -> CallError:
    """The error of a call that was ended early when it was with a worker, which tells in `told` how it ended there.

    A tool that may have changed something is not to be called again unseen, whatever ended it.
    """
    details = {**error.details, **{key: told[key] for key in _TOLD_BY_WORKER if key in told}}
    repeatable = safe_to_repeat(tool.definition.side_effects, idempotent=tool.definition.idempotent)
    message = error.message
    if details.get("mid_frame"):
        message += (
            " Its process had begun a frame and not ended it: most often something was printed to stdout, which is the "
            "wire; print to stderr."
        )
    elif "violation" in told:
        message += f" Its process had broken the wire protocol ({told['violation']})."
    if details.get("outcome_unknown"):
        message += " Nobody knows whether it took effect."
    return replace(error, message=message, details=details, retryable=error.retryable and repeatable)
