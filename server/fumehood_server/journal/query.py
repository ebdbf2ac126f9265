"""Which events somebody asks for, and whether one fits: by its columns, else by its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.store import StoredEvent
from fumehood_server.model.events import ExecuteAttempt, ExecuteCancelled, ExecuteEnd, ExecuteStart

OK = "OK"
ENDS_OF_CALLS = frozenset({ExecuteEnd.TYPE, ExecuteCancelled.TYPE})
TYPES_OF_CALLS = frozenset({ExecuteStart.TYPE, ExecuteAttempt.TYPE, *ENDS_OF_CALLS})
"""What most events are. All others are found by an index of their types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """What an event must fit, all of it. Empty fields ask for nothing."""

    types: frozenset[str] = frozenset()
    since_us: int = 0
    """POSIX time in microseconds, as `until_us`, which is the first that no longer fits."""
    until_us: int = 0
    call_id: str = ""
    run_id: str = ""
    """The `request_id` of its calls."""
    session_id: str = ""
    tool: str = ""
    plugin: str = ""
    caller: str = ""
    outcomes: frozenset[str] = frozenset()
    """Of ends of calls: `OK`, or codes of errors."""

    @property
    def wanted_types(self) -> frozenset[str]:
        """The types that can fit. Empty: any."""
        if not self.outcomes:
            return self.types
        # Of types that nothing can be: one that there is not, so that nothing is found.
        return (self.types & ENDS_OF_CALLS or frozenset({""})) if self.types else ENDS_OF_CALLS

    def fits(self, event: StoredEvent) -> bool:
        """Whether an event is asked for."""
        types = self.wanted_types
        return (
            (not types or event.type in types)
            and self.since_us <= event.time_us
            and (not self.until_us or event.time_us < self.until_us)
            and (not self.tool or event.tool == self.tool)
            and (not self.plugin or event.plugin == self.plugin)
            and self._body_fits(event)
        )

    def _body_fits(self, event: StoredEvent) -> bool:
        if not (self.call_id or self.run_id or self.session_id or self.caller or self.outcomes):
            return True
        fields = decode(event.body)
        return (
            (not self.call_id or fields["call_id"] == self.call_id)
            and (not self.run_id or fields["run_id"] == self.run_id)
            and (not self.session_id or fields["context"].get("session_id") == self.session_id)
            and (not self.caller or fields["data"].get("caller") == self.caller)
            and (not self.outcomes or outcome_of(fields) in self.outcomes)
        )


def outcome_of(fields: Mapping[str, Any]) -> str:
    """How the call ended that a decoded event is the end of: `OK`, or the code of its error. Empty for other events."""
    if fields["type"] not in ENDS_OF_CALLS:
        return ""
    error = fields["data"]["error"]
    return OK if error is None else str(error["code"])


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the journal to be looked through, from `start` up to and without `end`."""

    start: int
    end: int
    newest_first: bool = False

    def after(self, position: int) -> Span:
        """What is left of it once an event was looked at."""
        return Span(self.start, position, True) if self.newest_first else Span(position + 1, self.end)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return self.start >= self.end


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one look into the journal: whichever is met first ends it."""

    events: int
    body_bytes: int
    looked_at: int = 50_000
    """Events that are read, whether or not they fit: some 100 ms."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a span."""

    events: Sequence[StoredEvent]
    rest: Span | None
    """What is to be looked through yet. None: nothing."""
