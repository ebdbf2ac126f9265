"""A call as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fumehood_server.model.call import CallOutcome
from fumehood_server.model.tool import Payloads


class RecordedState(StrEnum):
    """Where a recorded call stands."""

    RUNNING = "running"
    """It has no outcome yet."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """It may have had effects that nobody knows of."""
    RESOLVED = "resolved"
    """It was unknown, and somebody has settled it."""
    INTERRUPTED = "interrupted"
    """Its sidecar died before it had an outcome, and it may run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call, the newest of its id."""

    call_id: str
    tool: str
    arguments_hash: str
    """SHA-256 of the canonical arguments, 64 hex digits. Empty: it was not recorded."""
    state: RecordedState
    started_us: int
    """POSIX time in microseconds."""
    outcome: CallOutcome | None
    """What its caller got. None while it has no outcome."""
    removed: bool
    """Whether what it returned is no longer kept."""
    events: int = 0
    """How many events are about it."""
    caller: str = ""
    """Who called, as the journal recorded it."""
    sidecar: str = ""
    """Which runs it or has run it, where several record in one journal."""
    run_id: str = ""
    plugin: str = ""
    context: Mapping[str, str] = field(default_factory=dict)
    """Its caller's correlation."""
    start_position: int = 0
    end_position: int = 0
    """Of the event that has the last word on its outcome. 0: it has none."""
    result_sha256: str = ""
    """Of what its caller got, as it was recorded. Empty: not even that was."""
    payloads: Payloads = Payloads.FULL
    """What is kept of its arguments and result."""
    attempts: int = 0
    """Of one without an outcome: how many are recorded to have been sent."""
    code: tuple[str, str] = ("", "")
    """Of one without an outcome: digests of the plugin and the definition that it began with."""
    until_us: int = 0
    """Of an interrupted one: POSIX time in microseconds until which it may run again."""
