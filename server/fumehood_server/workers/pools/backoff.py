"""How long a worker that failed at start is left alone, or one that changes its tools."""

from __future__ import annotations

from fumehood_server.model.call import CallError


class Backoff:
    """Doubles the wait with each failure in a row: a plugin that crashes costs a start in a while, not one a call."""

    __slots__ = ("_first_s", "_last_s", "_until", "cause", "failures")

    def __init__(self, *, first_s: float, last_s: float) -> None:
        """The wait after the first failure, and the longest wait."""
        self._first_s = first_s
        self._last_s = last_s
        self._until = 0.0
        self.failures = 0
        """Failures in a row."""
        self.cause: CallError | None = None
        """What the last of them was."""

    def fail(self, now: float, cause: CallError | None = None) -> None:
        """A worker failed, `now` on the event loop's clock. `cause` is what callers are told who come too early."""
        # 2**60 times any wait is over every cap; larger powers would overflow a float at last.
        self._until = now + min(self._last_s, self._first_s * 2.0 ** min(self.failures, 60))
        self.failures += 1
        self.cause = cause

    def reset(self) -> None:
        """A worker did its work."""
        self.failures = 0
        self._until = 0.0
        self.cause = None

    def remembered_s(self, now: float) -> float:
        """How long the failures count for the next one's wait: as long again as the longest wait."""
        return self._until + self._last_s - now if self.failures else 0.0

    def left_s(self, now: float) -> float:
        """How long no worker is to be started. 0 or less: it may be."""
        return self._until - now
