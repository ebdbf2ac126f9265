"""Compares the table of standing approvals with the events that changed them, in their order.

Each event is applied to what the ones before it left, and at the end each row must be that. What all standing approvals
came to lies in memory meanwhile: people give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fumehood_server.journal.encoding import decode, encode
from fumehood_server.journal.store import Reader, StandingRow, StoredEvent
from fumehood_server.model.events import NOBODY, Event, ExecuteStart
from fumehood_server.model.standing import Standing
from fumehood_server.model.standing_events import StandingGranted, StandingRevoked, StandingUsed, granted_event

_ROWS = 256
_KINDS = frozenset({StandingGranted.TYPE, StandingUsed.TYPE, StandingRevoked.TYPE})
_ELSE = "is of a standing approval that the list of these shows otherwise"
_CALL = "call_id", "run_id", "tool", "plugin"


@dataclass(slots=True)
class _Said:
    """What the events so far say of one."""

    position: int
    """Of the one that changed it last: a use is that of its call's start."""
    granted: bytes | None = None
    """Its fields as JSON: in Python 1 and true are equal. None: that event was removed."""
    calls: int = 0
    of: tuple[str, ...] = ()
    """What it is about."""
    used: int = 0
    revoked: Mapping[str, Any] | None = None


@dataclass(slots=True)
class StandingChecks:
    """For one pass over all events, in order."""

    reader: Reader
    removed_up_to: int
    """Events before this position may be removed, and with them rows of those that can't be used any more."""
    _said: dict[str, _Said] = field(default_factory=dict)
    _started: int = -1
    """Position of the last start of a call."""

    def problem(self, event: StoredEvent, fields: Mapping[str, Any]) -> str:
        """What is wrong with an event about one. Empty: nothing is."""
        if event.type == ExecuteStart.TYPE:
            self._started = event.position
        if event.type not in _KINDS:
            return ""
        data = fields["data"]
        found = self._said.setdefault(data["standing_id"], _Said(-1))
        if found.revoked is not None:
            return "is of a standing approval that was revoked before"
        if event.type == StandingUsed.TYPE:
            return self._used(found, event)
        if event.type == StandingRevoked.TYPE:
            found.revoked = data
        elif found.position >= 0:
            return "gives a standing approval that was there before"
        else:
            found.granted, found.calls = orjson.dumps(data, option=orjson.OPT_SORT_KEYS), data["calls"]
            found.of = tuple(fields[name] for name in _CALL)
        found.position = event.position
        return ""

    def _used(self, found: _Said, event: StoredEvent) -> str:
        found.position, found.used = event.position - 1, found.used + 1
        if self._started != found.position and found.position >= self.removed_up_to:
            return "uses a standing approval, and no call begins with it"
        if 0 < found.calls < found.used:
            return "uses a standing approval that was used up before"
        return ""

    def rest(self) -> tuple[int, str] | None:
        """The first row that is not what the events say, or is missing, and its last event: once all were read."""
        after = ""
        while rows := self.reader.standing_approvals(after=after, limit=_ROWS):
            for row in rows:
                said = self._said.pop(row.standing_id, None)
                if not self._agrees(row, said):
                    return (row.position if said is None else said.position), _ELSE
            after = rows[-1].standing_id
        lost = [each.position for each in self._said.values() if each.position >= self.removed_up_to]
        return (min(lost), _ELSE) if lost else None

    def _agrees(self, row: StandingRow, said: _Said | None) -> bool:
        kept = Standing.from_json(row.record)
        columns = row.standing_id, row.binding, row.is_open, row.until_us
        if columns != (kept.standing_id, kept.binding, kept.is_open, kept.until_us):
            return False
        if said is None:  # all that was said of it is removed
            return row.position < self.removed_up_to
        if row.position != said.position or (kept.revoked is None) != (said.revoked is None):
            return False
        if said.revoked is not None and orjson.loads(orjson.dumps(kept.revoked)) != _without_id(said.revoked):
            return False
        if said.granted is None:
            return self.removed_up_to > 0 and kept.used >= said.used
        return (
            kept.used == said.used
            and _text(granted_event(kept)) == said.granted
            and (kept.call_id, kept.run_id, kept.subject.tool, kept.plugin) == said.of
        )


def _without_id(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != "standing_id"}


def _text(event: Event) -> bytes:
    """An event's fields as they are read back, as JSON."""
    data = decode(encode(event, NOBODY, time_us=0, sidecar="").body)["data"]
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
