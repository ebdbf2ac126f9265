"""A call as it was recorded, and where parts of the sidecar ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fumehood_server.model.call import CallOutcome


class RecordedState(StrEnum):
    """Where a recorded call stands."""

    RUNNING = "running"
    """It has no outcome yet."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """It may have had effects that nobody knows of."""
    RESOLVED = "resolved"
    """It was unknown, and somebody has settled it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call, the newest of its id."""

    call_id: str
    tool: str
    arguments_hash: str
    """SHA-256 of the canonical arguments, 64 hex digits."""
    state: RecordedState
    started_us: int
    """POSIX time in microseconds."""
    outcome: CallOutcome | None
    """What its caller got. None while it has no outcome."""
    removed: bool
    """Whether what it returned is no longer kept."""
    events: int = 0
    """How many events are about it."""
    run_id: str = ""
    session_id: str = ""
    plugin: str = ""


class RecordedCalls(Protocol):
    """Where recorded calls are asked for."""

    @property
    def recording(self) -> bool:
        """Whether anything is recorded at all."""

    async def find(self, call_id: str) -> RecordedCall | None:
        """The newest call of this id, ended calls of a moment ago included.

        Raises:
            JournalUnavailableError: the journal can't be read now.
        """
