"""A table of standing approvals beside the events: its rows change in the transaction that appends what changes them.

So what begins with one is counted where its start is recorded, under the database's lock: no kill and no second sidecar
comes between the question and the count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fumehood_server.journal.entry import Entry
from fumehood_server.model.approvals import ApprovalRefusedError
from fumehood_server.model.standing import Standing
from fumehood_server.model.steady_clock import STEADY_CLOCK

Row = tuple[str, str, bool, int, int, bytes]
"""Columns: standing approval, its binding, whether it is open, until when, the position of what changed it last, it."""


@dataclass(slots=True)
class StandingRows:
    """The standing approvals that a batch changes."""

    known: dict[str, Standing] = field(default_factory=dict)
    _positions: dict[str, int] = field(default_factory=dict)

    def refusal(self, entry: Entry) -> str:
        """Why an entry may not be appended, for what it says of one. Empty: it may. After `ApprovalRows.refusal`."""
        entry.settled_standing = None
        change = entry.standing
        if change is None:
            return ""
        try:
            now_us = max(entry.time_us, STEADY_CLOCK.now_us())
            entry.settled_standing = change.applied(self.known.get(change.standing_id), now_us)
        except ApprovalRefusedError as exc:
            entry.refusal = exc
            return str(exc)
        return ""

    def keep(self, entry: Entry, position: int) -> None:
        """The entry is appended."""
        found = entry.settled_standing
        if found is not None and found is not self.known.get(found.standing_id):
            self.known[found.standing_id] = found
            self._positions[found.standing_id] = position

    def rows(self) -> list[Row]:
        """Those that have changed."""
        return [
            (each, found.binding, found.is_open, found.until_us, position, found.to_json())
            for each, position in self._positions.items()
            for found in (self.known[each],)
        ]


def standing_ids_of(entries: Iterable[Entry]) -> list[str]:
    """The standing approvals that entries speak of."""
    return [*{entry.standing.standing_id for entry in entries if entry.standing is not None}]
