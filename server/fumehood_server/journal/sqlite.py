"""The journal in one SQLite file (WAL mode): the default, for one sidecar."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from fumehood_server.journal.entry import CallChange, CallRow, CallState, Entry
from fumehood_server.journal.store import Counts, EventFilter, NewerJournalError, StoredEvent, StoreError
from fumehood_server.journal.tree import TILE_HASHES, Tile, Tree

_ENDS = "('execute_start', 'execute_end', 'execute_cancelled')"
"""Events that the list of calls points to, so that no index has to."""

MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        time_us INTEGER NOT NULL,
        type TEXT NOT NULL,
        subject TEXT NOT NULL,
        tool TEXT NOT NULL,
        plugin TEXT NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX events_by_subject ON events (subject)
        WHERE subject <> '' AND type NOT IN {_ENDS};
    CREATE TABLE calls (
        call_id TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        arguments_hash BLOB NOT NULL,
        has_effects INTEGER NOT NULL,
        started_us INTEGER NOT NULL,
        state INTEGER NOT NULL,
        start_position INTEGER NOT NULL,
        end_position INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX calls_by_run ON calls (run_id) WHERE run_id <> '';
    CREATE INDEX calls_by_session ON calls (session_id) WHERE session_id <> '';
    CREATE INDEX calls_open ON calls (start_position) WHERE end_position IS NULL;
    CREATE TABLE payloads (
        position INTEGER NOT NULL,
        part INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (position, part)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE documents (
        digest BLOB PRIMARY KEY,
        data BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tiles (
        level INTEGER NOT NULL,
        tile INTEGER NOT NULL,
        hashes BLOB NOT NULL,
        PRIMARY KEY (level, tile)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE checkpoints (
        size INTEGER PRIMARY KEY,
        note TEXT NOT NULL
    ) STRICT;
    """,
)
"""Each brings the schema from the version that is its place to the next."""

_SELECT = "SELECT position, time_us, type, subject, tool, plugin, body FROM events"
_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
_CALL = "INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CHANGE = "UPDATE calls SET state = ?, end_position = coalesce(?, end_position) WHERE call_id = ?"
_PAYLOAD = "INSERT INTO payloads VALUES (?, ?, ?)"
_DOCUMENT = "INSERT OR IGNORE INTO documents VALUES (?, ?)"
_TILE = "INSERT INTO tiles VALUES (?, ?, ?)"
_PORTION = 256
_BUSY_MS = 5_000


class SqliteStore:
    """Writes. The only one that does: the file is locked against another sidecar's."""

    def __init__(self, path: Path) -> None:
        """Open or make the file, and bring it to this version.

        Raises:
            StoreError: it can't be.
            NewerJournalError: a newer sidecar wrote it.
        """
        self.path = path
        self._tree: Tree | None = None
        with contextlib.ExitStack() as stack, _told(path):
            stack.enter_context(_locked(path))
            self._connection = stack.enter_context(contextlib.closing(_connect(path)))
            _migrate(self._connection, path)
            self._opened = stack.pop_all()

    def write(self, entries: Sequence[Entry]) -> int:
        """See `Store`."""
        with _told(self.path):
            tree = self.tree().copy()
            rows = _Rows()
            for entry in entries:
                rows.add(entry, tree)
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                rows.write(connection)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._tree = tree
            return tree.size

    def tree(self) -> Tree:
        """See `Store`."""
        if self._tree is None:
            with _told(self.path):
                self._tree = load_tree(SqliteReader(self.path))
        return self._tree

    def add_checkpoint(self, size: int, note: str) -> None:
        """See `Store`."""
        with _told(self.path):
            self._connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (size, note))

    def close(self) -> None:
        """See `Store`."""
        self._opened.close()


class _Rows:
    """A batch as rows, each list for one `executemany`."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.calls: dict[str, CallRow] = {}
        self.changes: list[tuple[object, ...]] = []
        self.payloads: list[tuple[object, ...]] = []
        self.documents: dict[bytes, bytes] = {}
        self.tiles: list[Tile] = []

    def add(self, entry: Entry, tree: Tree) -> None:
        position = tree.size
        self.tiles += tree.append(entry.body)
        self.events.append((position, entry.time_us, entry.type, entry.subject, entry.tool, entry.plugin, entry.body))
        for part, data in enumerate(entry.payloads):
            self.payloads.append((position, part, data))
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
        connection.executemany(_EVENT, self.events)
        connection.executemany(_CALL, [_call_columns(row) for row in self.calls.values()])
        connection.executemany(_CHANGE, self.changes)
        connection.executemany(_PAYLOAD, self.payloads)
        connection.executemany(_DOCUMENT, self.documents.items())
        connection.executemany(_TILE, [(tile.level, tile.index, tile.hashes) for tile in self.tiles])


class SqliteReader:
    """Reads beside the writer: sees what is committed."""

    def __init__(self, path: Path) -> None:
        """Open the file for reading.

        Raises:
            StoreError: it can't be.
        """
        self.path = path
        with _told(path):
            self._connection = _connect(path, readonly=True)

    def counts(self) -> Counts:
        """See `Reader`."""
        sql = (
            "SELECT (SELECT coalesce(max(position) + 1, 0) FROM events), (SELECT count(*) FROM calls), "
            "(SELECT count(end_position) FROM calls), (SELECT count(*) FROM payloads)"
        )
        with _told(self.path):
            return Counts(*self._connection.execute(sql).fetchone())

    def last(self, kind: str) -> StoredEvent | None:
        """See `Reader`."""
        sql = f"{_SELECT} WHERE type = ? ORDER BY position DESC LIMIT 1"
        with _told(self.path):
            row = self._connection.execute(sql, (kind,)).fetchone()
        return None if row is None else StoredEvent(*row)

    def events(self, wanted: EventFilter, *, after: int = -1, limit: int) -> list[StoredEvent]:
        """See `Reader`."""
        where, values = _where(wanted)
        sql = f"{_SELECT} WHERE position > ? {where} ORDER BY position LIMIT ?"
        with _told(self.path):
            return [StoredEvent(*row) for row in self._connection.execute(sql, (after, *values, limit))]

    def bodies(self, start: int, end: int) -> Iterator[bytes]:
        """See `Reader`."""
        for first in range(start, end, _PORTION):
            sql = "SELECT body FROM events WHERE position >= ? AND position < ? ORDER BY position"
            with _told(self.path):
                rows = self._connection.execute(sql, (first, min(end, first + _PORTION))).fetchall()
            for (body,) in rows:
                yield body

    def calls(self, call_ids: Collection[str]) -> dict[str, CallRow]:
        """See `Reader`."""
        sql = f"SELECT * FROM calls WHERE call_id IN ({', '.join('?' * len(call_ids))})"  # noqa: S608 - bound
        with _told(self.path):
            return {row[0]: _call_row(row) for row in self._connection.execute(sql, tuple(call_ids))}

    def open_calls(self, *, limit: int) -> list[CallRow]:
        """See `Reader`."""
        sql = "SELECT * FROM calls WHERE end_position IS NULL ORDER BY start_position LIMIT ?"
        with _told(self.path):
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
        with _told(self.path):
            return [_call_row(row) for row in self._connection.execute(sql, (*values, limit))]

    def events_of_call(self, call_id: str) -> list[StoredEvent]:
        """See `Reader`."""
        row = self.calls([call_id]).get(call_id)
        if row is None:
            return []
        sql = (
            f"{_SELECT} WHERE position IN (?, ?) UNION ALL {_SELECT} WHERE subject = ? AND position > ? "
            f"AND subject <> '' AND type NOT IN {_ENDS} ORDER BY position"
        )
        with _told(self.path):
            rows = self._connection.execute(
                sql, (row.start_position, row.end_position, call_id, row.start_position)
            ).fetchall()
        return [StoredEvent(*each) for each in rows]

    def calls_of_run(self, run_id: str) -> list[str]:
        """See `Reader`."""
        sql = "SELECT call_id FROM calls WHERE run_id = ? OR session_id = ? ORDER BY start_position"
        with _told(self.path):
            return [row[0] for row in self._connection.execute(sql, (run_id, run_id))]

    def payloads(self, start: int, end: int) -> dict[tuple[int, int], bytes]:
        """See `Reader`."""
        sql = "SELECT position, part, data FROM payloads WHERE position >= ? AND position < ?"
        with _told(self.path):
            return {(position, part): data for position, part, data in self._connection.execute(sql, (start, end))}

    def document(self, digest: bytes) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._one("SELECT data FROM documents WHERE digest = ?", digest)
        return found

    def documents(self) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        with _told(self.path):
            yield from self._connection.execute("SELECT digest, data FROM documents")

    def tile(self, level: int, index: int) -> bytes | None:
        """See `Reader`."""
        found: bytes | None = self._one("SELECT hashes FROM tiles WHERE level = ? AND tile = ?", level, index)
        return found

    def tile_places(self) -> list[tuple[int, int]]:
        """See `Reader`."""
        with _told(self.path):
            return self._connection.execute("SELECT level, tile FROM tiles").fetchall()

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """See `Reader`."""
        after = -1
        while True:
            sql = "SELECT size, note FROM checkpoints WHERE size > ? ORDER BY size LIMIT ?"
            with _told(self.path):
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
        with _told(self.path):
            row = self._connection.execute(sql, values).fetchone()
        return None if row is None else row[0]


def load_tree(reader: SqliteReader) -> Tree:
    """The tree over what is written, and let go of the reader."""
    with contextlib.closing(reader):
        size = reader.counts().events
        return Tree.load(size, reader.tile, reader.bodies(size - size % TILE_HASHES, size))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other sidecars from writing it (flock(2)), whose trees would grow apart."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreError(f"the journal {path} can't be used: unable to open {lock}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as exc:
        raise StoreError(f"another sidecar writes the journal {path}: name another state_dir") from exc
    finally:
        os.close(descriptor)


def _connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    if not readonly:
        # SQLite gives its other files the rights of this one.
        with contextlib.suppress(OSError):  # told by SQLite
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    mode = "ro" if readonly else "rw"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1e3)
    if not readonly:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # each commit is on disk: sqlite.org/pragma.html
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > len(MIGRATIONS):
        raise NewerJournalError(str(path), found, len(MIGRATIONS))
    for version in range(found, len(MIGRATIONS)):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")


def _where(wanted: EventFilter) -> tuple[str, list[object]]:
    parts: list[str] = []
    values: list[object] = []
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
        state=CallState(state),
        start_position=start_position,
        end_position=end_position,
    )


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as exc:
        raise StoreError(f"the journal {path} can't be used: {exc}") from exc
