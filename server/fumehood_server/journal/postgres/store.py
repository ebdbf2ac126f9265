"""Writes the journal to PostgreSQL, beside other sidecars: a group's transaction holds the lock of the log's head."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from fumehood_evidence.merkle import HASH_BYTES, leaf_hash

from fumehood_server.journal.approval_rows import ApprovalRows, ids_of
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.entry import CallClaim, CallRow, Entry, RunClaim, filed
from fumehood_server.journal.postgres.agreement import SharedSettings, agree
from fumehood_server.journal.postgres.connection import BoundedConnection, connect, told
from fumehood_server.journal.postgres.ownership import hold, is_dead, taken_over
from fumehood_server.journal.postgres.reader import PostgresReader
from fumehood_server.journal.postgres.rows import Rows, known_calls
from fumehood_server.journal.postgres.run_owners import END_TYPE, NEWEST, NO_OWNER, RunOwners
from fumehood_server.journal.postgres.schema import MIGRATIONS, migrate
from fumehood_server.journal.postgres.statements import (
    APPROVAL,
    CALLS,
    CHANGES,
    EVENT_TYPES,
    EVENTS_OF_OPEN,
    KNOWN,
    PAYLOAD_TYPES,
    QUOTA_HOLDS,
    QUOTA_WINDOWS,
    STANDING,
)
from fumehood_server.journal.quota_rows import EXPIRED, MAX_EXPIRED, OPEN_HOLDS, QuotaRows, counters_of
from fumehood_server.journal.sql.pruning import next_removal
from fumehood_server.journal.sql.search import first_at
from fumehood_server.journal.standing_rows import StandingRows, standing_ids_of
from fumehood_server.journal.store import PruneEvent, PruneEventsEvent, StoreError, load_tree
from fumehood_server.journal.tree import TILE_BITS, TILE_HASHES, Tree
from fumehood_server.model.approvals import Approval
from fumehood_server.model.quota_counts import Window
from fumehood_server.model.standing import Standing

if TYPE_CHECKING:
    from fumehood_server.config.database import Database

_FEW = 64
"""Rows that go as arrays of one statement. More are copied: measured, that takes a third as long for each row, and two
exchanges with the server."""


@dataclass(slots=True)
class Instance:
    """This sidecar, over all its connections."""

    sidecar: str
    window_us: int
    """How long a call's id stands for the call."""
    settings: SharedSettings | None = None
    """What it must have like the others. None: it is no sidecar, but a command."""
    earlier_pid: int | None = None
    """The server's process of its last connection."""
    in_doubt: _InDoubt | None = None
    """The batch whose commit was not answered."""
    written: dict[int, Entry] = field(default_factory=dict)
    """By identity: events of such a batch that were found to be there. The writer hands them over again."""


@dataclass(frozen=True, slots=True)
class _InDoubt:
    entries: Sequence[Entry]
    position: int
    """Of its first event."""
    body: bytes
    """Of that event."""


class PostgresStore:
    """For one thread. Nothing is written but with the lock that says that this sidecar lives."""

    rising_time = "reached_us"

    def __init__(self, database: Database, instance: Instance) -> None:
        """Connect, and bring the schema to this version.

        Raises:
            StoreError: the database can't be used.
            UnequalSettingsError: another sidecar has other settings.
            NewerJournalError: a newer sidecar wrote it.
        """
        self.database = database
        self._instance = instance
        self._tree: Tree | None = None
        self._settles: list[str] = []
        with contextlib.ExitStack() as stack, told(database):
            self._connection = stack.enter_context(contextlib.closing(connect(database)))
            migrate(self._connection, database)
            hold(self._connection, instance.sidecar, instance.earlier_pid)
            instance.earlier_pid = self._connection.info.backend_pid
            if instance.settings is not None:
                agree(self._connection, instance.settings)
            self._opened = stack.pop_all()

    def write(self, entries: Sequence[Entry]) -> int:
        """See `Store`."""
        with told(self.database):
            self._settle_doubt()
            written = self._instance.written
            new = [each for each in entries if id(each) not in written] if written else entries
            with self._head(new) as rows:
                for entry in new:
                    rows.add(entry)
            for each in entries if written else ():
                written.pop(id(each), None)
            return rows.tree.size

    def write_unsynced(self, entries: Sequence[Entry]) -> int:
        """See `Store`. What other sidecars may have seen is on disk."""
        return self.write(entries)

    def sync(self) -> None:
        """See `Store`. It is."""

    def _settle_doubt(self) -> None:
        """Find out whether an earlier connection has committed what it ended with."""
        doubt = self._instance.in_doubt
        if doubt is None:
            return
        sql = "SELECT FROM events WHERE position = %s AND body = %s"
        with self._connection.transaction():
            found = self._connection.execute(sql, (doubt.position, doubt.body)).fetchone()
            was_written = found is not None or self._leaf(doubt.position) == leaf_hash(doubt.body)
        if was_written:
            self._instance.written |= {id(each): each for each in doubt.entries}
        self._instance.in_doubt = None

    def _leaf(self, position: int) -> bytes | None:
        """The hash of an event that may have been removed since, by the tile that it lies in."""
        sql = "SELECT hashes FROM tiles WHERE level = 0 AND tile = %s"
        row = self._connection.execute(sql, (position >> TILE_BITS,)).fetchone()
        at = position % TILE_HASHES * HASH_BYTES
        return None if row is None else bytes(row[0][at : at + HASH_BYTES])

    @contextlib.contextmanager
    def _head(self, entries: Sequence[Entry]) -> Iterator[Rows]:
        """A transaction with the lock of the head, and the rows to add to. They are on disk after the block."""
        connection = self._connection
        call_ids = list({each.subject for each in entries if each.call is not None or each.of_call})
        try:
            with connection.pipeline():
                head = connection.execute("SELECT version, size, reached_us, late_us FROM head FOR UPDATE")
                known = connection.execute(KNOWN, (call_ids,))
            size, reached_us, late_us = self._checked(head.fetchall())
            tree = self._up_to(size).copy()
            rows = Rows(
                tree,
                reached_us,
                late_us,
                known_calls({call_id: tuple(rest) for call_id, *rest in known.fetchall()}),
                {self._instance.sidecar, *self._settles},
                self._instance.sidecar,
                self._instance.window_us,
                self._approvals(ids_of(entries)),
                self._left(entries),
                self._quotas(entries),
                self._standing(standing_ids_of(entries)),
                self._runs([each.run for each in entries if each.run is not None]),
            )
            yield rows
            if rows.events:
                self._instance.in_doubt = _InDoubt([*entries], size, rows.first_body)
            self._commit(rows)
            self._instance.in_doubt = None
            self._tree = tree
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            raise

    def _approvals(self, approval_ids: list[str]) -> ApprovalRows:
        """As they are. Who changes one has the lock of the head."""
        if not approval_ids:
            return ApprovalRows()
        sql = "SELECT approval_id, record FROM approvals WHERE approval_id = ANY(%s)"
        found = self._connection.execute(sql, (approval_ids,), binary=True).fetchall()
        return ApprovalRows({approval_id: Approval.from_json(bytes(record)) for approval_id, record in found})

    def _standing(self, standing_ids: list[str]) -> StandingRows:
        """Likewise."""
        if not standing_ids:
            return StandingRows()
        sql = "SELECT standing_id, record FROM standing_approvals WHERE standing_id = ANY(%s)"
        found = self._connection.execute(sql, (standing_ids,), binary=True).fetchall()
        return StandingRows({standing_id: Standing.from_json(bytes(record)) for standing_id, record in found})

    def _left(self, entries: Sequence[Entry]) -> dict[str, int]:
        """How many events those calls have which dead sidecars left, of the ones that are claimed.

        Until the transaction ends, none of those sidecars can come back.
        """
        claims = [each.call for each in entries if type(each.call) is CallClaim]
        return {
            each.call_id: self.rows(EVENTS_OF_OPEN, (each.call_id, each.call_id))[0][0]
            for each in claims
            if is_dead(self._connection, each.owner)
        }

    def _runs(self, claims: Sequence[RunClaim]) -> RunOwners:
        """Likewise."""
        found = {}
        for run_id in {each.run_id for each in claims}:
            for kind, body in self.rows(NEWEST, (run_id,)):
                found[run_id] = NO_OWNER if kind == END_TYPE else decode(bytes(body))["sidecar"]
        left = {each.owner for each in claims if each.owner and each.owner != self._instance.sidecar}
        return RunOwners(found, [each for each in left if is_dead(self._connection, each)])

    def _quotas(self, entries: Sequence[Entry]) -> QuotaRows:
        """Likewise."""
        windows, holds = counters_of(entries)
        found = QuotaRows()
        if windows:
            sql = "SELECT counter, record FROM quota_windows WHERE counter = ANY(%s)"
            rows = self._connection.execute(sql, (windows,), binary=True).fetchall()
            found.windows = {counter: Window.from_json(bytes(record)) for counter, record in rows}
        if holds:
            sql = f"SELECT counter, calls.call_id {OPEN_HOLDS} AND counter = ANY(%s)"
            for counter, call_id in self._connection.execute(sql.encode(), (holds,)).fetchall():
                found.holds.setdefault(counter, set()).add(call_id)
        return found

    def _checked(self, found: list[tuple[int, int, int, int]]) -> tuple[int, int, int]:
        if len(found) != 1:
            raise StoreError(f"{self.database}: its table `head` does not have one row")
        version, *rest = found[0]
        if version > len(MIGRATIONS):
            raise StoreError(f"{self.database}: a newer sidecar has brought its schema to version {version}")
        if version < len(MIGRATIONS):
            raise StoreError(f"{self.database}: its schema was put back to version {version}")
        size, reached_us, late_us = rest
        return size, reached_us, late_us

    def _commit(self, rows: Rows) -> None:
        """Append them and commit. Few rows go with the commit, in one exchange with the server."""
        connection = self._connection
        tables = ("events", EVENT_TYPES, rows.events), ("payloads", PAYLOAD_TYPES, rows.payloads)
        for table, types, several in tables:
            if len(several) > _FEW:
                _copy(connection, table, types, several)
        with connection.pipeline():
            for table, types, several in tables:
                if 0 < len(several) <= _FEW:
                    _insert(connection, table, types, several)
            if rows.calls:
                connection.execute(CALLS, _columns([_call_columns(each) for each in rows.calls.values()]))
            if rows.changes:
                connection.execute(CHANGES, _columns([(key, *each) for key, each in rows.changes.items()]))
            of_approvals = [(APPROVAL, each) for each in rows.approvals.rows()]
            for statement, row in (*of_approvals, *((STANDING, each) for each in rows.standing.rows())):
                connection.execute(statement, row)
            self._write_quotas(rows)
            if rows.documents:
                sql = "INSERT INTO documents SELECT * FROM unnest(%s::bytea[], %s::bytea[]) ON CONFLICT DO NOTHING"
                connection.execute(sql, _columns([*rows.documents.items()]))
            for tile in rows.tiles:
                connection.execute("INSERT INTO tiles VALUES (%s, %s, %b)", (tile.level, tile.index, tile.hashes))
            connection.execute(
                "UPDATE head SET size = %s, reached_us = %s, late_us = %s",
                (rows.tree.size, rows.reached_us, rows.late_us),
            )
            connection.commit()

    def _write_quotas(self, rows: Rows) -> None:
        connection, quotas = self._connection, rows.quotas
        windows, holds = quotas.window_rows(), quotas.hold_rows()
        if quotas.released:
            connection.execute("DELETE FROM quota_holds WHERE call_id = ANY(%s)", ([*quotas.released],))
        if windows:
            expired = EXPIRED.replace("?", "%s").encode()
            connection.execute(expired, (rows.reached_us, MAX_EXPIRED + len(windows)))
            connection.execute(QUOTA_WINDOWS, _columns(windows))
        if holds:
            connection.execute(QUOTA_HOLDS, _columns(holds))

    def _up_to(self, size: int) -> Tree:
        """The tree over so many events: as this sidecar knows it, and what others have appended since."""
        tree = self._tree
        if tree is None or not 0 <= size - tree.size <= TILE_HASHES:
            tree = load_tree(PostgresReader(self.database), size)
        else:
            sql = "SELECT body FROM events WHERE position >= %s AND position < %s ORDER BY position"
            bodies = self._connection.execute(sql, (tree.size, size), binary=True).fetchall()
            if len(bodies) == size - tree.size:
                for (body,) in bodies:
                    tree.append(body)
            else:  # some were removed since
                tree = load_tree(PostgresReader(self.database), size)
        if tree.size != size:
            raise StoreError(f"{self.database}: its log has {tree.size} events in place of {size}")
        self._tree = tree
        return tree

    def prune(self, before_us: int, limit: int, event: PruneEvent) -> int:
        """See `Store`."""
        with told(self.database), self._head(()) as rows:
            connection = self._connection
            end = first_at(self, before_us, 0, rows.tree.size)
            sql = "SELECT position FROM payloads WHERE position < %s ORDER BY position LIMIT %s"
            found = connection.execute(sql, (end, limit)).fetchall()
            if found:
                up_to = found[-1][0] + 1  # all parts of the last one
                count = connection.execute("DELETE FROM payloads WHERE position < %s", (up_to,)).rowcount
                rows.add(event(up_to, count, time.time_ns() // 1_000))
                return count
        return 0

    def prune_events(self, before_us: int, limit: int, event: PruneEventsEvent) -> int:
        """See `Store`."""
        with told(self.database), self._head(()) as rows:
            # Of tables that nobody has analysed yet, the planner may think that reading all is quicker.
            self._connection.execute("SET LOCAL enable_seqscan = off")
            removal = next_removal(self, rows.tree.size, before_us, limit)
            if removal is None:
                return 0
            for sql, values in removal.statements():
                self._connection.execute(sql.replace("?", "%s").encode(), values)
            rows.add(event(removal.pruned, time.time_ns() // 1_000))
        return removal.passed

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """See `fumehood_server.journal.sql.search.Timed`."""
        return self._connection.execute(sql.replace("?", "%s").encode(), values).fetchall()

    def owners(self) -> list[str]:
        """See `Store`."""
        with told(self.database), self._connection.transaction():
            return [owner for (owner,) in self.rows("SELECT DISTINCT owner FROM calls WHERE end_position IS NULL")]

    @contextlib.contextmanager
    def taking_over(self, owner: str) -> Iterator[bool]:
        """See `Store`."""
        with told(self.database), taken_over(self._connection, owner) as taken:
            if taken:
                self._settles.append(owner)
            try:
                yield taken
            finally:
                if taken:
                    self._settles.remove(owner)

    def tree(self) -> Tree:
        """See `Store`."""
        with told(self.database), self._connection.transaction():
            row = self._connection.execute("SELECT size FROM head").fetchone()
            return self._up_to(0 if row is None else row[0])

    def add_checkpoint(self, size: int, note: str) -> None:
        """See `Store`. Each sidecar's key has one for each size."""
        sql = (
            "INSERT INTO checkpoints VALUES (%s, %s, %s) ON CONFLICT (size, signer) DO UPDATE SET note = excluded.note"
        )
        with told(self.database), self._connection.transaction():
            self._connection.execute(sql, (size, note.partition("\n")[0], note))

    def shrink(self) -> None:
        """Give free space back to the file system.

        Raises:
            StoreError: it takes longer than is waited for, or there is not as much space as it takes meanwhile.
        """
        with told(self.database), contextlib.closing(connect(self.database, answer_s=3_600.0)) as connection:
            connection.autocommit = True
            connection.execute("VACUUM FULL events, calls, payloads")

    def close(self) -> None:
        """See `Store`."""
        self._opened.close()


def _copy(connection: BoundedConnection, table: str, types: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)".encode()) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _insert(
    connection: BoundedConnection, table: str, types: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> None:
    arrays = ", ".join(f"%b::{each}[]" for each in types)
    connection.execute(f"INSERT INTO {table} SELECT * FROM unnest({arrays})".encode(), _columns(rows))


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _call_columns(row: CallRow) -> tuple[object, ...]:
    return (
        row.call_id,
        filed(row.run_id),
        filed(row.session_id),
        filed(row.tool),
        row.arguments_hash,
        row.has_effects,
        row.started_us,
        int(row.state),
        row.start_position,
        row.end_position,
        row.owner,
    )
