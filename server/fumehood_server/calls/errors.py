"""How a step says that the call ends there."""

from __future__ import annotations

from fumehood_server.errors import FumehoodError
from fumehood_server.model.call import CallError
from fumehood_server.model.worker import CancelReason


class StepFailedError(FumehoodError):
    """The call ends by `error`, which its caller is told."""

    def __init__(self, error: CallError) -> None:
        """Keep the call's error."""
        super().__init__(error.message)
        self.error = error


class NotBegunError(StepFailedError):
    """The call ends before it has begun, and may come again under its id: nothing is recorded as its outcome."""


class StandingLostError(FumehoodError):
    """A standing approval that was there a moment ago can't be used by the call any more. It has not begun."""

    def __init__(self, standing_id: str, problem: str) -> None:
        """Name it."""
        super().__init__(problem)
        self.standing_id = standing_id


class EndedEarlyError(StepFailedError):
    """The call was cancelled, or met a deadline."""

    def __init__(self, error: CallError, reason: CancelReason) -> None:
        """`reason` is what a worker is told."""
        super().__init__(error)
        self.reason = reason
