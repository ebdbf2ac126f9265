"""Which events of the SQLite file go when whole events are removed, and which stay since their call is not settled."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fumehood_server.journal.entry import CallState
from fumehood_server.journal.pruned import pruned_of
from fumehood_server.journal.sqlite.database import NOT_ENDS, NOT_OF_CALLS
from fumehood_server.journal.store import Pruned
from fumehood_server.model.events import EventsPruned
from fumehood_server.model.operation_events import PluginPinned

_OF_SUBJECT = f"subject <> '' AND {NOT_ENDS}"
"""What the index by subject holds."""
_POSITION = "SELECT position FROM events"
_OF_CALL = f"{_POSITION} WHERE subject = ? AND position > ? AND position < ? AND {_OF_SUBJECT}"
_SUBJECTS = "SELECT DISTINCT subject FROM events"
_CALLS = "SELECT call_id, start_position, end_position, state FROM calls"
_BODY = "SELECT body FROM events"
_LAST = f"{_BODY} WHERE type = ? AND {NOT_OF_CALLS} ORDER BY position DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Removal:
    """What one transaction removes."""

    positions: Sequence[int]
    calls: Sequence[str]
    up_to: int

    def carry_out(self, connection: sqlite3.Connection) -> None:
        """Delete it, and checkpoints that are older. In a transaction of the caller's."""
        # Statements for many rows: see `fumehood_server.journal.sqlite.store`.
        for table, column, values in (
            ("events", "position", self.positions),
            ("payloads", "position", self.positions),
            ("calls", "call_id", self.calls),
        ):
            connection.execute(f"DELETE FROM {table} WHERE {column} IN ({_marks(values)})", values)  # noqa: S608 - bound
        connection.execute("DELETE FROM checkpoints WHERE size < ?", (self.up_to,))


def last_pruned(connection: sqlite3.Connection) -> Pruned:
    """What was removed until now."""
    row = connection.execute(_LAST, (EventsPruned.TYPE,)).fetchone()
    return Pruned() if row is None else pruned_of(row[0])


def find_removal(connection: sqlite3.Connection, start: int, end: int) -> Removal:
    """What goes of the events `start` to `end`, and of those before them that belong to calls which are settled now."""
    sql = "SELECT position, type, subject FROM events WHERE position >= ? AND position < ?"
    rows = connection.execute(sql, (start, end)).fetchall()
    subjects = sorted({subject for _, _, subject in rows if subject})
    began, settled = _calls(connection, subjects, end)
    positions = [
        position
        for position, kind, subject in rows
        if kind != PluginPinned.TYPE
        # An id that was used again is the last call's: events of the one before it belong to no call any more.
        and (subject not in began or subject in settled or position < began[subject])
    ]
    for call_id, ended in settled.items():
        if began[call_id] < start:
            earlier = connection.execute(_OF_CALL, (call_id, began[call_id], start))
            positions += [began[call_id], *(row[0] for row in earlier), *([ended] if ended < start else ())]
    return Removal(positions, list(settled), end)


def _calls(connection: sqlite3.Connection, call_ids: Sequence[str], end: int) -> tuple[dict[str, int], dict[str, int]]:
    """Where each of these calls began, and where those ended that are settled by events before `end` alone."""
    marks = _marks(call_ids)
    sql = f"{_CALLS} WHERE call_id IN ({marks})"
    rows = connection.execute(sql, call_ids).fetchall()
    sql = f"{_SUBJECTS} WHERE subject IN ({marks}) AND position >= ? AND {_OF_SUBJECT}"
    later = {row[0] for row in connection.execute(sql, (*call_ids, end))}
    settled = {
        call_id: ended
        for call_id, _, ended, state in rows
        if ended is not None and ended < end and state != CallState.UNKNOWN and call_id not in later
    }
    return {call_id: began for call_id, began, _, _ in rows}, settled


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
