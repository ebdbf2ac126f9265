"""Writes the journal to a SQLite file (WAL mode): the default, for one sidecar."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fumehood_server.journal.approval_rows import ApprovalRows, ids_of
from fumehood_server.journal.entry import CallChange, CallRow, CallState, Entry
from fumehood_server.journal.quota_rows import EXCEEDED, EXPIRED, MAX_EXPIRED, OPEN_HOLDS, QuotaRows, counters_of
from fumehood_server.journal.sql.pruning import next_removal
from fumehood_server.journal.sql.search import first_at
from fumehood_server.journal.sqlite.database import as_store_errors, connect, locked, migrate
from fumehood_server.journal.sqlite.reader import SqliteReader
from fumehood_server.journal.standing_rows import StandingRows, standing_ids_of
from fumehood_server.journal.store import PruneEvent, PruneEventsEvent, StoreError, load_tree
from fumehood_server.journal.tree import Tile, Tree
from fumehood_server.model.approvals import Approval
from fumehood_server.model.quota_counts import Window
from fumehood_server.model.standing import Standing

_CHANGE = "UPDATE calls SET state = ?, end_position = coalesce(?, end_position) WHERE call_id = ?"
_MAX_ROWS = 512
"""Of one statement. Each statement gives Python's lock away and takes it again, some four times, and each time the
event loop loses it for as long as it takes to be woken: row by row, that is most of what recording costs."""
_NEWEST = "SELECT time_us FROM events ORDER BY position DESC LIMIT 1"
_MAX_WINDOWS = 1_024
"""Windows of quotas that are kept at hand, of 61 entries each."""
_SMALL_BYTES = 4096
"""SQLite copies what a statement is given: of larger payloads, one each."""


class SqliteStore:
    """Writes. The only one that does: the file is locked against another sidecar's."""

    rising_time = "time_us"

    def __init__(self, path: Path) -> None:
        """Open or make the file, and bring it to this version.

        Raises:
            StoreError: it can't be.
            NewerJournalError: a newer sidecar wrote it.
        """
        self.path = path
        self._tree: Tree | None = None
        self._synchronous = "FULL"
        self._windows = dict[str, Window]()
        """Those that were counted last, as the file has them: nobody else writes."""
        self._written_windows = 0
        """Since those that count nothing were removed."""
        with contextlib.ExitStack() as stack, as_store_errors(path):
            stack.enter_context(locked(path))
            self._connection = stack.enter_context(contextlib.closing(connect(path)))
            migrate(self._connection, path)
            self._opened = stack.pop_all()

    def write(self, entries: Sequence[Entry]) -> int:
        """See `Store`."""
        self._set_synchronous("FULL")
        return self._write(entries)

    def write_unsynced(self, entries: Sequence[Entry]) -> int:
        """See `Store`. In WAL mode, NORMAL is FULL but for the fsync of each commit (sqlite.org/pragma.html)."""
        self._set_synchronous("NORMAL")
        return self._write(entries)

    def sync(self) -> None:
        """See `Store`. The log has what was committed; whoever opens the file reads it first."""
        self._set_synchronous("FULL")
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self.path.with_name(f"{self.path.name}-wal"), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            except OSError as exc:
                raise StoreError(f"the journal {self.path} can't be used: {exc.strerror}") from exc
            finally:
                os.close(descriptor)

    def _set_synchronous(self, mode: str) -> None:
        if mode != self._synchronous:
            with as_store_errors(self.path):
                self._connection.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode

    def _write(self, entries: Sequence[Entry], also: Callable[[sqlite3.Connection], object] | None = None) -> int:
        """Append events, and do something more in the same transaction."""
        with as_store_errors(self.path), self._windows_as_written():
            tree = self.tree().copy()
            rows = _Rows(
                self._approvals(ids_of(entries)), self._standing(standing_ids_of(entries)), self._quotas(entries)
            )
            for entry in entries:
                rows.add(entry, tree)
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                rows.write(connection)
                self._remove_expired(rows)
                if also is not None:
                    also(connection)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._tree = tree
            return tree.size

    @contextlib.contextmanager
    def _windows_as_written(self) -> Iterator[None]:
        """Forget the windows that are at hand where what was counted in them has not become the file's."""
        try:
            yield
        except BaseException:
            self._windows.clear()
            raise
        if len(self._windows) > _MAX_WINDOWS:
            self._windows.clear()

    def _remove_expired(self, rows: _Rows) -> None:
        """Remove windows that count nothing: as many as were written and some, once that is worth a statement."""
        self._written_windows += rows.written_windows
        if self._written_windows >= MAX_EXPIRED:
            self._connection.execute(EXPIRED, (rows.events[-1][1], MAX_EXPIRED + self._written_windows))
            self._written_windows = 0

    def _approvals(self, approval_ids: Sequence[str]) -> ApprovalRows:
        """As they are: nobody else writes."""
        if not approval_ids:
            return ApprovalRows()
        sql = f"SELECT approval_id, record FROM approvals WHERE approval_id IN ({', '.join('?' * len(approval_ids))})"
        found = self._connection.execute(sql, approval_ids).fetchall()
        return ApprovalRows({approval_id: Approval.from_json(record) for approval_id, record in found})

    def _standing(self, standing_ids: Sequence[str]) -> StandingRows:
        """Likewise."""
        found = StandingRows()
        for some in _portions(standing_ids):
            marks = ", ".join("?" * len(some))
            sql = f"SELECT standing_id, record FROM standing_approvals WHERE standing_id IN ({marks})"
            rows = self._connection.execute(sql, some)
            found.known |= {standing_id: Standing.from_json(record) for standing_id, record in rows}
        return found

    def _quotas(self, entries: Sequence[Entry]) -> QuotaRows:
        """Likewise."""
        windows, holds = counters_of(entries)
        found = QuotaRows()
        for counters in _portions([each for each in windows if each not in self._windows]):
            sql = f"SELECT counter, record FROM quota_windows WHERE counter IN ({', '.join('?' * len(counters))})"
            for counter, record in self._connection.execute(sql, counters):
                self._windows[counter] = Window.from_json(record)
        if windows:
            found.windows = self._windows
        for counters in _portions(holds):
            sql = f"SELECT counter, calls.call_id {OPEN_HOLDS} AND counter IN ({', '.join('?' * len(counters))})"
            for counter, call_id in self._connection.execute(sql, counters):
                found.holds.setdefault(counter, set()).add(call_id)
        return found

    def prune(self, before_us: int, limit: int, event: PruneEvent) -> int:
        """See `Store`."""
        with as_store_errors(self.path):
            connection = self._connection
            end = first_at(self, before_us, 0, self.tree().size)
            sql = "SELECT position FROM payloads WHERE position < ? ORDER BY position LIMIT 1 OFFSET ?"
            last = connection.execute(sql, (end, limit - 1)).fetchone()
            up_to = end if last is None else last[0] + 1  # all parts of the last one
            count = int(connection.execute("SELECT count(*) FROM payloads WHERE position < ?", (up_to,)).fetchone()[0])
            last_us = connection.execute(_NEWEST).fetchone()[0] if count else 0
        if count:
            sql = "DELETE FROM payloads WHERE position < ?"
            self._write([event(up_to, count, last_us)], lambda connection: connection.execute(sql, (up_to,)))
        return count

    def prune_events(self, before_us: int, limit: int, event: PruneEventsEvent) -> int:
        """See `Store`."""
        with as_store_errors(self.path):
            removal = next_removal(self, self.tree().size, before_us, limit)
            if removal is None:
                return 0
            last_us = self._connection.execute(_NEWEST).fetchone()[0]

        def carry_out(connection: sqlite3.Connection) -> None:
            for sql, values in removal.statements():
                connection.execute(sql, values)

        self._write([event(removal.pruned, last_us)], carry_out)
        return removal.passed

    def rows(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """See `fumehood_server.journal.sql.search.Timed`."""
        return self._connection.execute(sql, values)

    def owners(self) -> list[str]:
        """See `Store`."""
        return [""]

    @contextlib.contextmanager
    def taking_over(self, owner: str) -> Iterator[bool]:  # noqa: ARG002 - as in the protocol
        """See `Store`. Who has the file's lock is the only one that lives."""
        yield True

    def shrink(self) -> None:
        """Give free space back to the file system.

        Raises:
            StoreError: there is not as much space as it takes meanwhile.
        """
        with as_store_errors(self.path):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def tree(self) -> Tree:
        """See `Store`."""
        if self._tree is None:
            with as_store_errors(self.path):
                self._tree = load_tree(SqliteReader(self.path))
        return self._tree

    def add_checkpoint(self, size: int, note: str) -> None:
        """See `Store`."""
        with as_store_errors(self.path):
            self._connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (size, note))

    def close(self) -> None:
        """See `Store`."""
        self._opened.close()


class _Rows:
    """A batch as rows, each list for one `executemany`."""

    def __init__(self, approvals: ApprovalRows, standing: StandingRows, quotas: QuotaRows) -> None:
        self.approvals = approvals
        self.standing = standing
        self.quotas = quotas
        self.events: list[tuple[object, ...]] = []
        self.calls: dict[str, CallRow] = {}
        self.changes: list[tuple[object, ...]] = []
        self.payloads: list[tuple[object, ...]] = []
        self.large_payloads: list[tuple[object, ...]] = []
        self.documents: dict[bytes, bytes] = {}
        self.tiles: list[Tile] = []
        self.written_windows = 0

    def add(self, entry: Entry, tree: Tree) -> None:
        position = tree.size
        of_approvals = entry.approval is not None or entry.standing is not None or entry.requires is not None
        if of_approvals:
            entry.refused = self.approvals.refusal(entry) or self.standing.refusal(entry)
            if entry.refused:
                return
        if entry.charges and self.quotas.refuses(entry, entry.time_us):
            entry.refused = EXCEEDED
            return
        if of_approvals:
            self.approvals.keep(entry, position)
            self.standing.keep(entry, position)
        if entry.charges or entry.releases:
            self.quotas.keep(entry, position, entry.time_us)
        self.tiles += tree.append(entry.body)
        self.events.append((position, entry.time_us, entry.type, entry.subject, entry.tool, entry.plugin, entry.body))
        for part, data in enumerate(entry.payloads):
            rows = self.payloads if len(data) <= _SMALL_BYTES else self.large_payloads
            rows.append((position, part, data))
        for document in entry.documents:
            self.documents[document.digest] = document.data
        if type(entry.call) is CallChange:
            self._change(entry.call, position)
        elif type(entry.call) is CallRow:
            entry.call.start_position = position
            self.calls[entry.call.call_id] = entry.call

    def _change(self, change: CallChange, position: int) -> None:
        end = position if change.state in {CallState.ENDED, CallState.UNKNOWN} else None
        row = self.calls.get(change.call_id)
        if row is None:
            self.changes.append((change.state, end, change.call_id))
        else:
            row.state, row.end_position = change.state, row.end_position if end is None else end

    def write(self, connection: sqlite3.Connection) -> None:
        _insert(connection, "INSERT INTO events", self.events)
        _insert(connection, "INSERT OR REPLACE INTO calls", [_call_columns(row) for row in self.calls.values()])
        if self.changes:
            connection.executemany(_CHANGE, self.changes)
        _insert(connection, "INSERT OR REPLACE INTO approvals", self.approvals.rows())
        _insert(connection, "INSERT OR REPLACE INTO standing_approvals", self.standing.rows())
        self._write_quotas(connection)
        _insert(connection, "INSERT INTO payloads", self.payloads)
        if self.large_payloads:
            connection.executemany("INSERT INTO payloads VALUES (?, ?, ?)", self.large_payloads)
        _insert(connection, "INSERT OR IGNORE INTO documents", list(self.documents.items()))
        _insert(connection, "INSERT INTO tiles", [(tile.level, tile.index, tile.hashes) for tile in self.tiles])

    def _write_quotas(self, connection: sqlite3.Connection) -> None:
        quotas = self.quotas
        for counters in _portions([*quotas.released]):
            connection.execute(f"DELETE FROM quota_holds WHERE call_id IN ({', '.join('?' * len(counters))})", counters)
        windows = quotas.window_rows()
        _insert(connection, "INSERT OR REPLACE INTO quota_windows", windows)
        self.written_windows = len(windows)
        _insert(connection, "INSERT OR REPLACE INTO quota_holds", quotas.hold_rows())


def _portions(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + _MAX_ROWS] for start in range(0, len(values), _MAX_ROWS))


def _insert(connection: sqlite3.Connection, head: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert all rows by one statement, or one for each `_MAX_ROWS`."""
    for start in range(0, len(rows), _MAX_ROWS):
        part = rows[start : start + _MAX_ROWS]
        places, columns = 1 << (len(part) - 1).bit_length(), len(part[0])
        values = [*itertools.chain.from_iterable(part), *[None] * ((places - len(part)) * columns), len(part)]
        # By `executemany`, which does not ask for the last row's id.
        connection.executemany(_statement(head, places, columns), (values,))


@functools.cache
def _statement(head: str, places: int, columns: int) -> str:
    """One for each power of two, so that SQLite keeps them all compiled. Places without a row are left out."""
    row = f"({', '.join('?' * columns)})"
    return f"{head} SELECT * FROM (VALUES {', '.join([row] * places)}) LIMIT ?"


def _call_columns(row: CallRow) -> tuple[object, ...]:
    return (
        row.call_id,
        row.run_id,
        row.session_id,
        row.tool,
        row.arguments_hash,
        row.has_effects,
        row.started_us,
        row.state,
        row.start_position,
        row.end_position,
    )
