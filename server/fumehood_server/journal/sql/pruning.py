"""Which events go when whole events are removed by SQL, and which stay since their call is not settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fumehood_server.journal.entry import CallState
from fumehood_server.journal.pruned import pruned_of
from fumehood_server.journal.sql.columns import NOT_ENDS, NOT_OF_CALLS
from fumehood_server.journal.sql.search import Timed, first_at
from fumehood_server.journal.store import Pruned
from fumehood_server.journal.tree import TILE_HASHES
from fumehood_server.model.events import EventsPruned
from fumehood_server.model.operation_events import PluginPinned

_OF_SUBJECT = f"subject <> '' AND {NOT_ENDS}"
"""What the index by subject holds."""
_POSITION = "SELECT position FROM events"
_OF_CALL = f"{_POSITION} WHERE subject = ? AND position > ? AND position < ? AND {_OF_SUBJECT}"
_LATEST = "SELECT subject, max(position) FROM events"
"""No bound of positions: PostgreSQL would go through all that are beyond it rather than by the index of subjects."""
_CALLS = "SELECT call_id, start_position, end_position, state FROM calls"
_BODY = "SELECT body FROM events"
_LAST = f"{_BODY} WHERE type = ? AND {NOT_OF_CALLS} ORDER BY position DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Removal:
    """What one transaction removes."""

    positions: Sequence[int]
    calls: Sequence[str]
    passed: int
    """Events that it comes by."""
    pruned: Pruned
    """What is removed then."""

    def statements(self) -> Iterator[tuple[str, Sequence[object]]]:
        """Delete it, and checkpoints that are older."""
        # Statements for many rows: see `fumehood_server.journal.sqlite.store`.
        for table, column, values in (
            ("events", "position", self.positions),
            ("payloads", "position", self.positions),
            ("calls", "call_id", self.calls),
        ):
            if values:
                yield f"DELETE FROM {table} WHERE {column} IN ({_marks(values)})", values
        yield "DELETE FROM approvals WHERE position < ? AND NOT is_open", (self.pruned.up_to,)
        sql = "DELETE FROM standing_approvals WHERE position < ? AND (NOT is_open OR until_us <= ?)"
        yield sql, (self.pruned.up_to, self.pruned.until_us)
        yield "DELETE FROM checkpoints WHERE size < ?", (self.pruned.up_to,)


def next_removal(database: Timed, size: int, before_us: int, limit: int) -> Removal | None:
    """What goes next of a log of that size, from before a time. None: nothing."""
    row = next(iter(database.rows(_LAST, (EventsPruned.TYPE,))), None)
    before = Pruned() if row is None else pruned_of(row[0])
    end = min(first_at(database, before_us, 0, size), before.up_to + limit)
    end -= end % TILE_HASHES  # what is after the last complete tile has no hash in one
    if end <= before.up_to:
        return None
    positions, calls = _find(database, before.up_to, end)
    sql = f"SELECT {database.rising_time} FROM events WHERE position < ? ORDER BY position DESC LIMIT 1"
    until = next(iter(database.rows(sql, (end,))), None)
    until_us = before.until_us if until is None else int(until[0])
    return Removal(positions, calls, end - before.up_to, Pruned(end, until_us, before.removed + len(positions)))


def _find(database: Timed, start: int, end: int) -> tuple[list[int], list[str]]:
    """What goes of the events `start` to `end`, and of those before them that belong to calls which are settled now."""
    sql = "SELECT position, type, subject FROM events WHERE position >= ? AND position < ?"
    rows = [*database.rows(sql, (start, end))]
    subjects = sorted({subject for _, _, subject in rows if subject})
    began, settled = _calls(database, subjects, end)
    positions = [
        position
        for position, kind, subject in rows
        if kind != PluginPinned.TYPE
        # An id that was used again is the last call's: events of the one before it belong to no call any more.
        and (subject not in began or subject in settled or position < began[subject])
    ]
    for call_id, ended in settled.items():
        if began[call_id] < start:
            earlier = database.rows(_OF_CALL, (call_id, began[call_id], start))
            positions += [began[call_id], *(row[0] for row in earlier), *([ended] if ended < start else ())]
    return positions, list(settled)


def _calls(database: Timed, call_ids: Sequence[str], end: int) -> tuple[dict[str, int], dict[str, int]]:
    """Where each of these calls began, and where those ended that are settled by events before `end` alone."""
    if not call_ids:
        return {}, {}
    marks = _marks(call_ids)
    sql = f"{_CALLS} WHERE call_id IN ({marks})"
    rows = [*database.rows(sql, call_ids)]
    sql = f"{_LATEST} WHERE subject IN ({marks}) AND {_OF_SUBJECT} GROUP BY subject"
    later = {subject for subject, latest in database.rows(sql, call_ids) if latest >= end}
    settled = {
        call_id: ended
        for call_id, _, ended, state in rows
        if ended is not None and ended < end and state != CallState.UNKNOWN and call_id not in later
    }
    return {call_id: began for call_id, began, _, _ in rows}, settled


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
