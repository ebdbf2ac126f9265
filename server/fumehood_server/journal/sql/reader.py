"""Reads the journal by SQL: what every database of it has in common."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from fumehood_server.journal.entry import CallRow, CallState
from fumehood_server.journal.query import TYPES_OF_CALLS, Bounds, EventQuery, Found, Span
from fumehood_server.journal.quota_rows import OPEN_HOLDS
from fumehood_server.journal.sql.columns import NOT_ENDS, NOT_OF_CALLS, OF_APPROVALS, SELECT
from fumehood_server.journal.sql.search import first_at, search
from fumehood_server.journal.store import ApprovalRow, Counts, EventFilter, StandingRow, StoredEvent

_PORTION = 256
_STATES = {int(each): each for each in CallState}
_IDS = 4_096
_CALL = (
    "calls.call_id, calls.run_id, calls.session_id, calls.tool, calls.arguments_hash, calls.has_effects, "
    "calls.started_us, calls.state, calls.start_position, calls.end_position"
)


_STANDING = "SELECT standing_id, binding, is_open, until_us, position, record FROM standing_approvals"


class SqlReader(ABC):
    """See `Reader`. A database's own reader says how a statement is carried out, and how its errors are told."""

    rising_time: str = "time_us"
    shared: bool = False
    _owner: ClassVar[str] = "''"
    """What of `calls` names the sidecar that runs a call."""

    @abstractmethod
    def rows(self, sql: str, values: Sequence[object] = ()) -> Iterable[tuple[Any, ...]]:
        """What a statement finds, with `?` for each value."""

    @abstractmethod
    def as_store_errors(self) -> contextlib.AbstractContextManager[None]:
        """The database's errors as ours."""

    @abstractmethod
    def close(self) -> None:
        """See `Reader`."""

    @abstractmethod
    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        """See `Reader`."""

    def most_late_us(self) -> int:
        """See `fumehood_server.journal.sql.search.Database`."""
        return 0

    def size(self) -> int:
        """See `Reader`."""
        return int(self._one("SELECT coalesce(max(position) + 1, 0) FROM events"))

    def least_time_us(self) -> int:
        """See `Reader`."""
        return int(self._one("SELECT coalesce((SELECT time_us FROM events ORDER BY position DESC LIMIT 1), 0)"))

    def search(self, query: EventQuery, span: Span, bounds: Bounds) -> Found:
        """See `Reader`."""
        with self.as_store_errors():
            return search(self, query, span, bounds)

    def counts(self) -> Counts:
        """See `Reader`."""
        sql = (
            "SELECT (SELECT coalesce(max(position) + 1, 0) FROM events), (SELECT count(*) FROM calls), "
            "(SELECT count(end_position) FROM calls), (SELECT count(*) FROM payloads)"
        )
        with self.as_store_errors():
            return Counts(*next(iter(self.rows(sql))))

    def last(self, kind: str) -> StoredEvent | None:
        """See `Reader`."""
        sql = f"{SELECT} WHERE type = ? {_rare([kind])} ORDER BY position DESC LIMIT 1"
        with self.as_store_errors():
            row = next(iter(self.rows(sql, (kind,))), None)
        return None if row is None else StoredEvent(*row)

    def events(self, wanted: EventFilter, *, after: int = -1, limit: int) -> list[StoredEvent]:
        """See `Reader`."""
        where, values = _where(wanted)
        sql = f"{SELECT} WHERE position > ? {where} ORDER BY position LIMIT ?"
        with self.as_store_errors():
            return [StoredEvent(*row) for row in self.rows(sql, (after, *values, limit))]

    def bodies(self, start: int, end: int) -> Iterator[bytes]:
        """See `Reader`."""
        for first in range(start, end, _PORTION):
            sql = "SELECT body FROM events WHERE position >= ? AND position < ? ORDER BY position"
            with self.as_store_errors():
                rows = [*self.rows(sql, (first, min(end, first + _PORTION)))]
            for (body,) in rows:
                yield body

    def calls(self, call_ids: Collection[str]) -> dict[str, CallRow]:
        """See `Reader`."""
        if not call_ids:
            return {}
        sql = f"SELECT {_CALL}, {self._owner} FROM calls WHERE call_id IN ({', '.join('?' * len(call_ids))})"
        with self.as_store_errors():
            return {row[0]: _call_row(row) for row in self.rows(sql, tuple(call_ids))}

    def approvals(
        self,
        *,
        approval_id: str = "",
        call_id: str = "",
        is_open: bool = False,
        after: int | None = None,
        limit: int,
        max_bytes: int,
    ) -> list[tuple[int, bytes]]:
        """See `Reader`."""
        wanted = ("approval_id = ?", approval_id), ("call_id = ?", call_id), ("position > ?", after)
        parts = [(test, value) for test, value in wanted if value not in {"", None}]
        tests = [*(test for test, _ in parts), *(["is_open"] if is_open else [])]
        where = f"WHERE {' AND '.join(tests)} " if tests else ""
        sql = f"SELECT position, record FROM approvals {where}ORDER BY position {'DESC' if call_id else 'ASC'} LIMIT ?"
        found: list[tuple[int, bytes]] = []
        size = 0
        with self.as_store_errors():
            for position, record in self.rows(sql, (*(value for _, value in parts), limit)):
                size += len(record)
                if found and size > max_bytes:
                    break
                found.append((position, bytes(record)))
        return found

    def approval_positions(self, approval_ids: Collection[str]) -> dict[str, int]:
        """See `Reader`."""
        if not approval_ids:
            return {}
        marks = ", ".join("?" * len(approval_ids))
        sql = f"SELECT approval_id, position FROM approvals WHERE approval_id IN ({marks})"
        with self.as_store_errors():
            return {row[0]: row[1] for row in self.rows(sql, tuple(approval_ids))}

    def approval_rows(self, after: tuple[int, str], *, limit: int) -> list[ApprovalRow]:
        """See `Reader`."""
        sql = (
            "SELECT approval_id, call_id, is_open, position, record FROM approvals "
            "WHERE (position, approval_id) > (?, ?) ORDER BY position, approval_id LIMIT ?"
        )
        with self.as_store_errors():
            rows = self.rows(sql, (*after, limit))
            return [
                ApprovalRow(approval_id, call_id, bool(is_open), position, bytes(record))
                for approval_id, call_id, is_open, position, record in rows
            ]

    def standing_approvals(
        self, *, binding: str = "", open_at_us: int | None = None, after: str = "", limit: int
    ) -> list[StandingRow]:
        """See `Reader`."""
        tests, values = ["standing_id > ?"], list[object]([after])
        if binding:
            tests.append("binding = ?")
            values.append(binding)
        if open_at_us is not None:
            tests.append("is_open AND until_us > ?")
            values.append(open_at_us)
        sql = f"{_STANDING} WHERE {' AND '.join(tests)} ORDER BY standing_id LIMIT ?"
        with self.as_store_errors():
            return [_standing_row(row) for row in self.rows(sql, (*values, limit))]

    def standing_approval(self, standing_id: str) -> StandingRow | None:
        """See `Reader`."""
        with self.as_store_errors():
            row = next(iter(self.rows(f"{_STANDING} WHERE standing_id = ?", (standing_id,))), None)
        return None if row is None else _standing_row(row)

    def approval_events(self, call_id: str, before: int) -> list[StoredEvent]:
        """See `Reader`."""
        sql = f"{SELECT} WHERE subject = ? AND position < ? AND subject <> '' AND {NOT_ENDS} AND {OF_APPROVALS}"
        with self.as_store_errors():
            return [StoredEvent(*each) for each in self.rows(f"{sql} ORDER BY position", (call_id, before))]

    def quota_windows(self) -> Iterator[bytes]:
        """See `Reader`."""
        last = ""
        while True:
            sql = "SELECT counter, record FROM quota_windows WHERE counter > ? ORDER BY counter LIMIT ?"
            with self.as_store_errors():
                rows = [*self.rows(sql, (last, _PORTION))]
            yield from (bytes(record) for _, record in rows)
            if len(rows) < _PORTION:
                return
            last = rows[-1][0]

    def quota_holds(self) -> list[tuple[bytes, int]]:
        """See `Reader`."""
        with self.as_store_errors():
            found = self.rows(f"SELECT min(label), count(*) {OPEN_HOLDS} GROUP BY counter")
            return [(bytes(label), int(count)) for label, count in found]

    def open_calls(self, owner: str, *, limit: int) -> list[CallRow]:
        """See `Reader`."""
        sql = (
            f"SELECT {_CALL}, {self._owner} FROM calls WHERE end_position IS NULL AND {self._owner} = ? "
            "ORDER BY start_position LIMIT ?"
        )
        with self.as_store_errors():
            return [_call_row(row) for row in self.rows(sql, (owner, limit))]

    def newest_calls(self, *, run_id: str = "", limit: int) -> list[CallRow]:
        """See `Reader`."""
        values: tuple[str, ...] = ()
        if run_id:
            sql = (
                f"SELECT {_CALL}, {self._owner} FROM calls WHERE run_id = ? OR session_id = ? "
                "ORDER BY start_position DESC LIMIT ?"
            )
            values = (run_id, run_id)
        else:  # by the newest events, since calls are ordered by id
            sql = (
                f"SELECT {_CALL}, {self._owner} FROM events JOIN calls ON call_id = subject "
                "AND start_position = position WHERE type = 'execute_start' ORDER BY position DESC LIMIT ?"
            )
        with self.as_store_errors():
            return [_call_row(row) for row in self.rows(sql, (*values, limit))]

    def events_of_call(self, call_id: str) -> list[StoredEvent]:
        """See `Reader`."""
        row = self.calls([call_id]).get(call_id)
        if row is None:
            return []
        sql = (
            f"{SELECT} WHERE position IN (?, ?) UNION ALL {SELECT} WHERE subject = ? AND position > ? "
            f"AND subject <> '' AND {NOT_ENDS} ORDER BY position"
        )
        with self.as_store_errors():
            values = (row.start_position, row.end_position, call_id, row.start_position)
            return [StoredEvent(*each) for each in self.rows(sql, values)]

    def call_ids(self, since_us: int) -> Iterator[str]:
        """See `Reader`."""
        sql = (
            "SELECT position, subject FROM events WHERE position >= ? AND type = 'execute_start' "
            "ORDER BY position LIMIT ?"
        )
        with self.as_store_errors():
            start = first_at(self, since_us, 0, self.size())
        while True:  # in portions, since an open statement would keep the writer's log from being taken over
            with self.as_store_errors():
                rows = [*self.rows(sql, (start, _IDS))]
            yield from (call_id for _, call_id in rows)
            if len(rows) < _IDS:
                return
            start = rows[-1][0] + 1

    def calls_of_run(self, run_id: str) -> list[str]:
        """See `Reader`."""
        sql = "SELECT call_id FROM calls WHERE run_id = ? OR session_id = ? ORDER BY start_position"
        with self.as_store_errors():
            return [row[0] for row in self.rows(sql, (run_id, run_id))]

    def payloads(self, start: int, end: int) -> dict[tuple[int, int], bytes]:
        """See `Reader`."""
        sql = "SELECT position, part, data FROM payloads WHERE position >= ? AND position < ?"
        with self.as_store_errors():
            return {(position, part): data for position, part, data in self.rows(sql, (start, end))}

    def payloads_of(self, position: int, *, max_bytes: int) -> list[bytes | None]:
        """See `Reader`."""
        sql = "SELECT CASE WHEN length(data) <= ? THEN data END FROM payloads WHERE position = ? ORDER BY part"
        with self.as_store_errors():
            return [data for (data,) in self.rows(sql, (max_bytes, position))]

    def document(self, digest: bytes) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._one("SELECT data FROM documents WHERE digest = ?", digest)
        return found

    def documents(self) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        with self.as_store_errors():
            yield from self.rows("SELECT digest, data FROM documents")

    def tile(self, level: int, index: int) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._one("SELECT hashes FROM tiles WHERE level = ? AND tile = ?", level, index)
        return found

    def tile_places(self) -> list[tuple[int, int]]:
        """See `Reader`."""
        with self.as_store_errors():
            return [(level, tile) for level, tile in self.rows("SELECT level, tile FROM tiles")]

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """See `Reader`."""
        after = -1
        while True:
            sql = "SELECT size, note FROM checkpoints WHERE size > ? ORDER BY size LIMIT ?"
            with self.as_store_errors():
                rows = [*self.rows(sql, (after, _PORTION))]
            yield from rows
            if len(rows) < _PORTION:
                return
            after = rows[-1][0]

    def checkpoint(self, size: int, *, signer: str = "") -> str | None:  # noqa: ARG002 - one file, one key
        """See `Reader`."""
        found: str | None = self._one("SELECT note FROM checkpoints WHERE size >= ? ORDER BY size DESC LIMIT 1", size)
        return found

    def _one(self, sql: str, *values: object) -> Any:  # noqa: ANN401 - what the column holds
        with self.as_store_errors():
            row = next(iter(self.rows(sql, values)), None)
        return None if row is None else row[0]


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
    """What a query must say to be answered by the index by type, where all of these are in it."""
    return "" if TYPES_OF_CALLS & {*types} else f"AND {NOT_OF_CALLS}"


def _standing_row(row: tuple[Any, ...]) -> StandingRow:
    standing_id, binding, is_open, until_us, position, record = row
    return StandingRow(standing_id, binding, bool(is_open), until_us, position, bytes(record))


def _call_row(row: tuple[Any, ...]) -> CallRow:
    *texts, arguments_hash, effects, started_us, state, start_position, end_position, owner = row
    call_id, run_id, session_id, tool = texts
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
        owner=owner,
    )
