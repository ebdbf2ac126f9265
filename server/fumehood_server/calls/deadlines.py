"""Deadlines of a call: the first of the caller's, the request's and our own bounds, and its error."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code

MIN_WAIT_S = 30.0
"""Least that a call waits for a worker: several cold starts on a busy machine. A tool's longer timeout extends it."""


class Bound(StrEnum):
    """What set a deadline."""

    TOOL = "tool"
    """The tool's own timeout or the operator's cap, whichever is lower: counted from dispatch."""
    REQUEST = "request"
    """`timeout` of the request, counted from admission."""
    CALLER = "caller"
    """The gRPC deadline."""
    IDLE = "idle"
    """The longest that the tool's calls may go on without an update: counted from dispatch, then from each."""
    PREPARE = "prepare"
    """Ours, on what the plugin makes of the arguments: counted from when it was asked."""
    WAIT = "wait"
    """Ours, on waiting for a worker, or for a turn such as that of a large document."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The first of a call's bounds."""

    at: float
    """On the event loop's clock."""
    bound: Bound
    limit_s: float
    """What the bound was set to; for the caller's, what was left of it at admission."""

    def error(self, tool: str) -> CallError:
        """What a call that met it ends with. Retryable where repeating is safe: it may be quicker the next time."""
        if self.bound is Bound.CALLER:
            code, message = Code.CANCELLED_TIMEOUT, f"The caller's deadline passed before {tool} had finished."
        elif self.bound is Bound.WAIT:
            code = Code.TOOL_TIMEOUT
            message = f"{tool} waited for {self.limit_s:g} s for its turn or a free worker. Try again later."
        else:
            whose = "the tool's timeout" if self.bound is Bound.TOOL else "the timeout of the request"
            code, message = Code.TOOL_TIMEOUT, f"{tool} did not finish within {self.limit_s:g} s, {whose}."
        if self.bound is Bound.IDLE:
            message = f"{tool} sent no update for {self.limit_s:g} s, its idle timeout."
        late_s = max(time.monotonic() - self.at, 0.0)
        details = {
            "bound": str(self.bound),
            "limit": "idle_timeout_s" if self.bound is Bound.IDLE else "timeout_s",
            "value": self.limit_s,
            "usage": round(self.limit_s + late_s, 3),
            "unit": "s",
        }
        if self.bound is Bound.IDLE:
            details["reason"] = "idle_timeout"
        return CallError(code=code, message=message, retryable=True, details=details)


def first_deadline(
    *,
    admitted_at: float,
    timeout_s: float | None,
    caller_deadline: float | None,
    own: Bound,
    own_at: float,
    own_s: float,
) -> Deadline:
    """The earliest of the request's timeout, the caller's deadline and one bound of our own. On a tie ours is named."""
    at, bound, limit_s = own_at, own, own_s
    if timeout_s is None and caller_deadline is None:
        return Deadline(at, bound, limit_s)
    if timeout_s is not None and admitted_at + timeout_s < at:
        at, bound, limit_s = admitted_at + timeout_s, Bound.REQUEST, timeout_s
    if caller_deadline is not None and caller_deadline < at:
        at, bound, limit_s = caller_deadline, Bound.CALLER, round(caller_deadline - admitted_at, 3)
    return Deadline(at, bound, limit_s)
