"""The journal's tables in PostgreSQL, by version. All lie in one schema, which the first sidecar makes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from fumehood_server.journal.postgres.connection import MIGRATE_S, SCHEMA, BoundedConnection, connect
from fumehood_server.journal.sql.columns import NOT_ENDS, NOT_OF_CALLS
from fumehood_server.journal.store import NewerJournalError

if TYPE_CHECKING:
    from fumehood_server.config.database import Database

MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE head (
        version integer NOT NULL,
        size bigint NOT NULL,
        reached_us bigint NOT NULL,
        late_us bigint NOT NULL
    );
    CREATE UNIQUE INDEX head_is_one ON head ((true));
    INSERT INTO head VALUES (0, 0, 0, 0);
    CREATE TABLE events (
        position bigint PRIMARY KEY,
        time_us bigint NOT NULL,
        reached_us bigint NOT NULL,
        type text COLLATE "C" NOT NULL,
        subject text COLLATE "C" NOT NULL,
        tool text COLLATE "C" NOT NULL,
        plugin text COLLATE "C" NOT NULL,
        body bytea NOT NULL
    );
    CREATE INDEX events_by_subject ON events (subject)
        WHERE subject <> '' AND {NOT_ENDS};
    CREATE INDEX events_by_type ON events (type, position) WHERE {NOT_OF_CALLS};
    CREATE TABLE calls (
        call_id text COLLATE "C" PRIMARY KEY,
        run_id text COLLATE "C" NOT NULL,
        session_id text COLLATE "C" NOT NULL,
        tool text COLLATE "C" NOT NULL,
        arguments_hash bytea NOT NULL,
        has_effects boolean NOT NULL,
        started_us bigint NOT NULL,
        state smallint NOT NULL,
        start_position bigint NOT NULL,
        end_position bigint,
        owner text COLLATE "C" NOT NULL
    );
    CREATE INDEX calls_by_run ON calls (run_id) WHERE run_id <> '';
    CREATE INDEX calls_by_session ON calls (session_id) WHERE session_id <> '';
    CREATE INDEX calls_open ON calls (owner) WHERE end_position IS NULL;
    CREATE TABLE payloads (
        position bigint NOT NULL,
        part integer NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (position, part)
    );
    CREATE TABLE documents (
        digest bytea PRIMARY KEY,
        data bytea NOT NULL
    );
    CREATE TABLE tiles (
        level integer NOT NULL,
        tile bigint NOT NULL,
        hashes bytea NOT NULL,
        PRIMARY KEY (level, tile)
    );
    CREATE TABLE checkpoints (
        size bigint NOT NULL,
        signer text COLLATE "C" NOT NULL,
        note text NOT NULL,
        PRIMARY KEY (size, signer)
    );
    """,
    """
    CREATE TABLE approvals (
        approval_id text COLLATE "C" PRIMARY KEY,
        call_id text COLLATE "C" NOT NULL,
        is_open boolean NOT NULL,
        position bigint NOT NULL,
        record bytea NOT NULL
    );
    CREATE INDEX approvals_by_call ON approvals (call_id);
    CREATE INDEX approvals_by_position ON approvals (position);
    CREATE INDEX approvals_open ON approvals (position) WHERE is_open;
    """,
    """
    CREATE TABLE quota_windows (
        counter text COLLATE "C" PRIMARY KEY,
        expires_us bigint NOT NULL,
        record bytea NOT NULL
    );
    CREATE INDEX quota_windows_by_expiry ON quota_windows (expires_us);
    CREATE TABLE quota_holds (
        counter text COLLATE "C" NOT NULL,
        call_id text COLLATE "C" NOT NULL,
        start_position bigint NOT NULL,
        label bytea NOT NULL,
        PRIMARY KEY (counter, call_id)
    );
    CREATE INDEX quota_holds_by_call ON quota_holds (call_id);
    """,
    """
    CREATE TABLE standing_approvals (
        standing_id text COLLATE "C" PRIMARY KEY,
        binding text COLLATE "C" NOT NULL,
        is_open boolean NOT NULL,
        until_us bigint NOT NULL,
        position bigint NOT NULL,
        record bytea NOT NULL
    );
    CREATE INDEX standing_approvals_by_binding ON standing_approvals (binding, until_us) WHERE is_open;
    CREATE INDEX standing_approvals_open ON standing_approvals (standing_id) WHERE is_open;
    """,
)
"""Each brings the schema from the version that is its place to the next.

`head` has one row: whoever appends locks it, so that there is one order. `reached_us` is the latest time of any event
so far, and `late_us` how far an event's own time lay behind that, at most: sidecars have clocks of their own.
"""

_LOCK = 0x46756D65, 0
"""Advisory lock of who makes or changes the schema: pg_advisory_xact_lock(int, int)."""


def version_of(connection: BoundedConnection) -> int | None:
    """The schema's version. None: there is no journal yet."""
    row = connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.head",)).fetchone()
    if row is None or row[0] is None:
        return None
    row = connection.execute("SELECT version FROM head").fetchone()
    return 0 if row is None else int(row[0])


def check_version(found: int, database: Database) -> None:
    """Refuse what this sidecar would misread.

    Raises:
        NewerJournalError: a newer sidecar wrote it.
    """
    if found > len(MIGRATIONS):
        raise NewerJournalError(str(database), found, len(MIGRATIONS))


def migrate(connection: BoundedConnection, database: Database) -> None:
    """Bring the schema to this sidecar's version, in one transaction. Others that write meanwhile are refused after it.

    Raises:
        NewerJournalError: a newer sidecar wrote it.
    """
    with connection.transaction():
        found = version_of(connection)
    if found is not None:
        check_version(found, database)
        if found == len(MIGRATIONS):
            return
    with contextlib.closing(connect(database, answer_s=MIGRATE_S)) as patient, patient.transaction():
        patient.execute("SELECT pg_advisory_xact_lock(%s, %s)", _LOCK)
        found = version_of(patient)  # another may have been quicker
        if found is None:
            if not _exists(patient):
                patient.execute(f"CREATE SCHEMA {SCHEMA}")
            found = 0
        check_version(found, database)
        for step in MIGRATIONS[found:]:
            patient.execute(step.encode())
        patient.execute("UPDATE head SET version = %s", (len(MIGRATIONS),))


def _exists(connection: BoundedConnection) -> bool:
    """Whether there is the schema: an operator may have made it for a role that may not."""
    return connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone() is not None
