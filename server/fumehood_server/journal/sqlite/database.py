"""The journal's SQLite file: its schema by version, its one writer's lock, and SQLite's errors as ours."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fumehood_server.journal.sql.columns import NOT_ENDS, NOT_OF_CALLS
from fumehood_server.journal.store import InUseError, NewerJournalError, StoreError

MIGRATIONS: tuple[str, ...] = (
    """
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
        WHERE subject <> '' AND type NOT IN ('execute_start', 'execute_end', 'execute_cancelled');
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
    """
    CREATE INDEX events_by_type ON events (type)
        WHERE type NOT IN ('execute_start', 'execute_attempt', 'execute_end', 'execute_cancelled');
    """,
    f"""
    DROP INDEX events_by_subject;
    DROP INDEX events_by_type;
    CREATE INDEX events_by_subject ON events (subject) WHERE subject <> '' AND {NOT_ENDS};
    CREATE INDEX events_by_type ON events (type) WHERE {NOT_OF_CALLS};
    """,
    """
    CREATE TABLE approvals (
        approval_id TEXT PRIMARY KEY,
        call_id TEXT NOT NULL,
        is_open INTEGER NOT NULL,
        position INTEGER NOT NULL,
        record BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX approvals_by_call ON approvals (call_id);
    CREATE INDEX approvals_by_position ON approvals (position);
    CREATE INDEX approvals_open ON approvals (position) WHERE is_open;
    """,
    """
    CREATE TABLE quota_windows (
        counter TEXT PRIMARY KEY,
        expires_us INTEGER NOT NULL,
        record BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX quota_windows_by_expiry ON quota_windows (expires_us);
    CREATE TABLE quota_holds (
        counter TEXT NOT NULL,
        call_id TEXT NOT NULL,
        start_position INTEGER NOT NULL,
        label BLOB NOT NULL,
        PRIMARY KEY (counter, call_id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX quota_holds_by_call ON quota_holds (call_id);
    """,
    """
    CREATE TABLE standing_approvals (
        standing_id TEXT PRIMARY KEY,
        binding TEXT NOT NULL,
        is_open INTEGER NOT NULL,
        until_us INTEGER NOT NULL,
        position INTEGER NOT NULL,
        record BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX standing_approvals_by_binding ON standing_approvals (binding, until_us) WHERE is_open;
    CREATE INDEX standing_approvals_open ON standing_approvals (standing_id) WHERE is_open;
    """,
)
"""Each brings the schema from the version that is its place to the next."""

_BUSY_MS = 5_000


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
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
        raise InUseError(f"another sidecar writes the journal {path}: name another state_dir") from exc
    finally:
        os.close(descriptor)


_LOG_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut to once it was taken over: while somebody verifies, it can grow without bound."""


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection. The writer's makes the file. Raises SQLite's own errors: see `as_store_errors`."""
    if not readonly:
        # SQLite gives its other files the rights of this one.
        with contextlib.suppress(OSError):  # told by SQLite
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    mode = "ro" if readonly else "rw"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1e3)
    if not readonly:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        connection.execute("PRAGMA synchronous = FULL")  # each commit is on disk: sqlite.org/pragma.html
    return connection


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's version, which this sidecar knows.

    Raises:
        NewerJournalError: a newer sidecar wrote it.
    """
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > len(MIGRATIONS):
        raise NewerJournalError(str(path), found, len(MIGRATIONS))
    return found


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema to this sidecar's version, each step in a transaction.

    Raises:
        NewerJournalError: a newer sidecar wrote it.
    """
    found = check_version(connection, path)
    for version in range(found, len(MIGRATIONS)):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")


@contextlib.contextmanager
def as_store_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as exc:
        raise StoreError(f"the journal {path} can't be used: {exc}") from exc
