"""Tables of what quotas have used, beside the events: their rows change in the transaction that appends a call's start.

`quota_windows` has what counts in a window, a row for each counter; `quota_holds` the calls in flight, a row for each
counter and call. A call holds its place until the journal has its outcome, whoever puts that there: so what is counted
is joined with the list of calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

import orjson

from fumehood_server.journal.entry import CallChange, CallRow, CallState, Entry, filed
from fumehood_server.model.quota_counts import Window
from fumehood_server.model.quotas import Charge, Counted, Exceeded

OPEN_HOLDS = (
    "FROM quota_holds JOIN calls ON calls.call_id = quota_holds.call_id "
    "AND calls.start_position = quota_holds.start_position WHERE calls.end_position IS NULL"
)
EXPIRED = (
    "DELETE FROM quota_windows WHERE counter IN "
    "(SELECT counter FROM quota_windows WHERE expires_us <= ? ORDER BY expires_us LIMIT ?)"
)
EXCEEDED = "a quota has not as much left"
MAX_EXPIRED = 64
"""Windows without a count that a batch removes beside as many as it changes."""
_ENDS = frozenset({CallState.ENDED, CallState.UNKNOWN})

WindowRow = tuple[str, int, bytes]
"""Columns: counter, from when on nothing of it counts, what it has used."""
HoldRow = tuple[str, str, int, bytes]
"""Columns: counter, call, position of the call's start, quota and key."""


@dataclass(slots=True)
class QuotaRows:
    """The counters that a batch asks or changes. Under the database's lock, so that nobody else does meanwhile."""

    windows: dict[str, Window] = field(default_factory=dict)
    holds: dict[str, set[str]] = field(default_factory=dict)
    """By counter: the calls in flight."""
    _changed: set[str] = field(default_factory=set)
    _held: dict[tuple[str, str], HoldRow] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    """Calls that hold nothing any more."""

    def refuses(self, entry: Entry, now_us: int) -> bool:
        """Whether a start may not be: the entry says why. To be asked last, so that nothing else refuses it then."""
        entry.exceeded = None
        if not entry.charges or not (entry.asks or type(entry.call) is CallRow):
            return False
        for each in entry.charges:
            entry.exceeded = self._exceeded(each, now_us)
            if entry.exceeded is not None:
                return True
        return False

    def _exceeded(self, charge: Charge, now_us: int) -> Exceeded | None:
        if charge.counts is not Counted.IN_FLIGHT:
            return self._window(charge).exceeded(charge, now_us)
        used = Decimal(len(self.holds.get(charge.counter, ())))
        if used + charge.amount <= charge.limit:
            return None
        return Exceeded(charge=charge, used=used, now_us=now_us, free_us=None)

    def _window(self, charge: Charge) -> Window:
        found = self.windows.get(charge.counter)
        if found is None:
            found = self.windows[charge.counter] = Window.of(charge)
        return found

    def keep(self, entry: Entry, position: int, now_us: int) -> None:
        """The entry is appended."""
        call = entry.call
        for each in entry.charges:
            if each.counts is not Counted.IN_FLIGHT:
                if not each.amount:
                    continue
                self._window(each).add(each, now_us)
                self._changed.add(each.counter)
            elif type(call) is CallRow:
                label = orjson.dumps([filed(each.quota), [(name, filed(value)) for name, value in each.key]])
                self.holds.setdefault(each.counter, set()).add(call.call_id)
                self._held[each.counter, call.call_id] = (each.counter, call.call_id, position, label)
        if type(call) is CallRow:
            self.released.discard(call.call_id)
        elif type(call) is CallChange and call.state in _ENDS:
            self._release(call.call_id, is_kept=entry.releases)

    def _release(self, call_id: str, *, is_kept: bool) -> None:
        """`is_kept`: rows of an earlier batch have it."""
        for each in self.holds.values():
            each.discard(call_id)
        for counter, held in [*self._held]:
            if held == call_id:
                del self._held[counter, held]
        if is_kept:
            self.released.add(call_id)

    def window_rows(self) -> list[WindowRow]:
        """Those that have changed."""
        return [(each, found.expires_us, found.to_json()) for each in self._changed for found in (self.windows[each],)]

    def hold_rows(self) -> list[HoldRow]:
        """Those that are new."""
        return [*self._held.values()]


def counters_of(entries: Iterable[Entry]) -> tuple[list[str], list[str]]:
    """The counters that entries speak of: of windows, and of calls in flight."""
    windows, holds = set[str](), set[str]()
    for entry in entries:
        for each in entry.charges:
            (holds if each.counts is Counted.IN_FLIGHT else windows).add(each.counter)
    return [*windows], [*holds]


__all__ = ["EXCEEDED", "EXPIRED", "MAX_EXPIRED", "OPEN_HOLDS", "QuotaRows", "counters_of"]
