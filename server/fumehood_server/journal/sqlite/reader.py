"""Reads the journal from its SQLite file, beside the writer: sees what is committed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from fumehood_server.journal.entry import CallRow, CallState
from fumehood_server.journal.query import TYPES_OF_CALLS, Bounds, EventQuery, Found, Span
from fumehood_server.journal.sqlite.database import NOT_ENDS, NOT_OF_CALLS, check_version, connect, told
from fumehood_server.journal.sqlite.search import first_at, search
from fumehood_server.journal.store import Counts, EventFilter, StoredEvent
from fumehood_server.journal.tree import TILE_HASHES, Tree

_SELECT = "SELECT position, time_us, type, subject, tool, plugin, body FROM events"
_PORTION = 256
_STATES = {int(each): each for each in CallState}
_IDS = 4_096


class SqliteReader:
    """Reads beside the writer: sees what is committed."""

    def __init__(self, path: Path) -> None:
        """Open the file for reading.

        Raises:
            StoreError: it can't be.
            NewerJournalError: a newer sidecar wrote it.
        """
        self.path = path
        with contextlib.ExitStack() as stack, told(path):
            self._connection = stack.enter_context(contextlib.closing(connect(path, readonly=True)))
            check_version(self._connection, path)
            stack.pop_all()

    def size(self) -> int:
        """See `Reader`."""
        return int(self._one("SELECT coalesce(max(position) + 1, 0) FROM events"))

    def last_time_us(self) -> int:
        """See `Reader`."""
        return int(self._one("SELECT coalesce((SELECT time_us FROM events ORDER BY position DESC LIMIT 1), 0)"))

    def search(self, query: EventQuery, span: Span, bounds: Bounds) -> Found:
        """See `Reader`."""
        with told(self.path):
            return search(self._connection, query, span, bounds)

    def counts(self) -> Counts:
        """See `Reader`."""
        sql = (
            "SELECT (SELECT coalesce(max(position) + 1, 0) FROM events), (SELECT count(*) FROM calls), "
            "(SELECT count(end_position) FROM calls), (SELECT count(*) FROM payloads)"
        )
        with told(self.path):
            return Counts(*self._connection.execute(sql).fetchone())

    def last(self, kind: str) -> StoredEvent | None:
        """See `Reader`."""
        sql = f"{_SELECT} WHERE type = ? {_rare([kind])} ORDER BY position DESC LIMIT 1"
        with told(self.path):
            row = self._connection.execute(sql, (kind,)).fetchone()
        return None if row is None else StoredEvent(*row)

    def events(self, wanted: EventFilter, *, after: int = -1, limit: int) -> list[StoredEvent]:
        """See `Reader`."""
        where, values = _where(wanted)
        sql = f"{_SELECT} WHERE position > ? {where} ORDER BY position LIMIT ?"
        with told(self.path):
            return [StoredEvent(*row) for row in self._connection.execute(sql, (after, *values, limit))]

    def bodies(self, start: int, end: int) -> Iterator[bytes]:
        """See `Reader`."""
        for first in range(start, end, _PORTION):
            sql = "SELECT body FROM events WHERE position >= ? AND position < ? ORDER BY position"
            with told(self.path):
                rows = self._connection.execute(sql, (first, min(end, first + _PORTION))).fetchall()
            for (body,) in rows:
                yield body

    def calls(self, call_ids: Collection[str]) -> dict[str, CallRow]:
        """See `Reader`."""
        sql = f"SELECT * FROM calls WHERE call_id IN ({', '.join('?' * len(call_ids))})"  # noqa: S608 - bound
        with told(self.path):
            return {row[0]: _call_row(row) for row in self._connection.execute(sql, tuple(call_ids))}

    def open_calls(self, *, limit: int) -> list[CallRow]:
        """See `Reader`."""
        sql = "SELECT * FROM calls WHERE end_position IS NULL ORDER BY start_position LIMIT ?"
        with told(self.path):
            return [_call_row(row) for row in self._connection.execute(sql, (limit,))]

    def newest_calls(self, *, run_id: str = "", limit: int) -> list[CallRow]:
        """See `Reader`."""
        values: tuple[str, ...] = ()
        if run_id:
            sql = "SELECT * FROM calls WHERE run_id = ? OR session_id = ? ORDER BY start_position DESC LIMIT ?"
            values = (run_id, run_id)
        else:  # by the newest events, since calls are ordered by id
            sql = (
                "SELECT calls.* FROM events JOIN calls ON call_id = subject AND start_position = position "
                "WHERE type = 'execute_start' ORDER BY position DESC LIMIT ?"
            )
        with told(self.path):
            return [_call_row(row) for row in self._connection.execute(sql, (*values, limit))]

    def events_of_call(self, call_id: str) -> list[StoredEvent]:
        """See `Reader`."""
        row = self.calls([call_id]).get(call_id)
        if row is None:
            return []
        sql = (
            f"{_SELECT} WHERE position IN (?, ?) UNION ALL {_SELECT} WHERE subject = ? AND position > ? "
            f"AND subject <> '' AND {NOT_ENDS} ORDER BY position"
        )
        with told(self.path):
            rows = self._connection.execute(
                sql, (row.start_position, row.end_position, call_id, row.start_position)
            ).fetchall()
        return [StoredEvent(*each) for each in rows]

    def call_ids(self, since_us: int) -> Iterator[str]:
        """See `Reader`."""
        sql = (
            "SELECT position, subject FROM events WHERE position >= ? AND type = 'execute_start' "
            "ORDER BY position LIMIT ?"
        )
        with told(self.path):
            start = first_at(self._connection, since_us, 0, self.size())
        while True:  # in portions, since an open statement would keep the writer's log from being taken over
            with told(self.path):
                rows = self._connection.execute(sql, (start, _IDS)).fetchall()
            yield from (call_id for _, call_id in rows)
            if len(rows) < _IDS:
                return
            start = rows[-1][0] + 1

    def calls_of_run(self, run_id: str) -> list[str]:
        """See `Reader`."""
        sql = "SELECT call_id FROM calls WHERE run_id = ? OR session_id = ? ORDER BY start_position"
        with told(self.path):
            return [row[0] for row in self._connection.execute(sql, (run_id, run_id))]

    def payloads(self, start: int, end: int) -> dict[tuple[int, int], bytes]:
        """See `Reader`."""
        sql = "SELECT position, part, data FROM payloads WHERE position >= ? AND position < ?"
        with told(self.path):
            return {(position, part): data for position, part, data in self._connection.execute(sql, (start, end))}

    def payloads_of(self, position: int, *, max_bytes: int) -> list[bytes | None]:
        """See `Reader`."""
        sql = "SELECT CASE WHEN length(data) <= ? THEN data END FROM payloads WHERE position = ? ORDER BY part"
        with told(self.path):
            return [data for (data,) in self._connection.execute(sql, (max_bytes, position))]

    def document(self, digest: bytes) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._one("SELECT data FROM documents WHERE digest = ?", digest)
        return found

    def documents(self) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        with told(self.path):
            yield from self._connection.execute("SELECT digest, data FROM documents")

    def tile(self, level: int, index: int) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._one("SELECT hashes FROM tiles WHERE level = ? AND tile = ?", level, index)
        return found

    def tile_places(self) -> list[tuple[int, int]]:
        """See `Reader`."""
        with told(self.path):
            return self._connection.execute("SELECT level, tile FROM tiles").fetchall()

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """See `Reader`."""
        after = -1
        while True:
            sql = "SELECT size, note FROM checkpoints WHERE size > ? ORDER BY size LIMIT ?"
            with told(self.path):
                rows = self._connection.execute(sql, (after, _PORTION)).fetchall()
            yield from rows
            if len(rows) < _PORTION:
                return
            after = rows[-1][0]

    def checkpoint(self, size: int) -> str | None:
        """See `Reader`."""
        found: str | None = self._one("SELECT note FROM checkpoints WHERE size >= ? ORDER BY size DESC LIMIT 1", size)
        return found

    def close(self) -> None:
        """See `Reader`."""
        self._connection.close()

    def _one(self, sql: str, *values: object) -> Any:  # noqa: ANN401 - what the column holds
        with told(self.path):
            row = self._connection.execute(sql, values).fetchone()
        return None if row is None else row[0]


def load_tree(reader: SqliteReader) -> Tree:
    """The tree over what is written, and let go of the reader."""
    with contextlib.closing(reader):
        size = reader.counts().events
        return Tree.load(size, reader.tile, reader.bodies(size - size % TILE_HASHES, size))


def _where(wanted: EventFilter) -> tuple[str, list[object]]:
    parts: list[str] = []
    values: list[object] = []
    if wanted.types:
        parts.append(_rare(wanted.types))
    for column, several in (("type", sorted(wanted.types)), ("subject", wanted.subjects)):
        if several:
            parts.append(f"AND {column} IN ({', '.join('?' * len(several))})")
            values += several
    for test, value in (
        ("tool = ?", wanted.tool),
        ("plugin = ?", wanted.plugin),
        ("time_us >= ?", wanted.since_us),
        ("time_us < ?", wanted.until_us),
    ):
        if value:
            parts.append(f"AND {test}")
            values.append(value)
    return " ".join(parts), values


def _rare(types: Collection[str]) -> str:
    """What SQLite must read to take the index by type, where all of these are in it."""
    return "" if TYPES_OF_CALLS & {*types} else f"AND {NOT_OF_CALLS}"


def _call_row(row: tuple[Any, ...]) -> CallRow:
    call_id, run_id, session_id, tool, arguments_hash, effects, started_us, state, start_position, end_position = row
    return CallRow(
        call_id=call_id,
        run_id=run_id,
        session_id=session_id,
        tool=tool,
        arguments_hash=arguments_hash,
        has_effects=bool(effects),
        started_us=started_us,
        state=_STATES[state],
        start_position=start_position,
        end_position=end_position,
    )
