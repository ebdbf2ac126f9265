"""A table of approvals beside the events: its rows change in the transaction that appends what changes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fumehood_server.journal.entry import Entry
from fumehood_server.model.approval_changes import Decide
from fumehood_server.model.approvals import Approval, ApprovalRefusedError
from fumehood_server.model.steady_clock import STEADY_CLOCK

Row = tuple[str, str, bool, int, bytes]
"""Columns: approval, call, whether it is open, the position of what changed it last, the approval."""


@dataclass(slots=True)
class ApprovalRows:
    """The approvals that a batch changes. Under the database's lock, so that nobody else does meanwhile."""

    known: dict[str, Approval] = field(default_factory=dict)
    _positions: dict[str, int] = field(default_factory=dict)

    def refusal(self, entry: Entry) -> str:
        """Why an entry may not be appended, for what it says of an approval. Empty: it may."""
        entry.settled = entry.refusal = None
        if entry.requires is not None and entry.requires.refused:
            return entry.requires.refused
        change = entry.approval
        if change is not None:
            try:
                # A decision counts from its event's time, by which the list can be held against the events.
                now_us = entry.time_us if isinstance(change, Decide) else max(entry.time_us, STEADY_CLOCK.now_us())
                entry.settled = change.applied(self.known.get(change.approval_id), now_us)
            except ApprovalRefusedError as exc:
                entry.refusal = exc
                return str(exc)
        return ""

    def keep(self, entry: Entry, position: int) -> None:
        """The entry is appended."""
        if entry.settled is not None:
            self.known[entry.settled.approval_id] = entry.settled
            self._positions[entry.settled.approval_id] = position

    def rows(self) -> list[Row]:
        """Those that have changed."""
        return [
            (each, found.call_id, found.state.is_open, position, found.to_json())
            for each, position in self._positions.items()
            for found in (self.known[each],)
        ]


def ids_of(entries: Iterable[Entry]) -> list[str]:
    """The approvals that entries speak of."""
    return [*{entry.approval.approval_id for entry in entries if entry.approval is not None}]
