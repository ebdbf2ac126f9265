"""Writes the journal to PostgreSQL, beside other sidecars: a group's transaction holds the lock of the log's head."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from fumehood_evidence.merkle import HASH_BYTES, leaf_hash

from fumehood_server.journal.entry import Entry
from fumehood_server.journal.postgres.agreement import SharedSettings, agree
from fumehood_server.journal.postgres.connection import as_store_errors, connect
from fumehood_server.journal.postgres.locked_lookups import approvals_of, events_left, quotas_of, runs_of, standing_of
from fumehood_server.journal.postgres.ownership import hold, taken_over
from fumehood_server.journal.postgres.reader import PostgresReader
from fumehood_server.journal.postgres.row_writing import append_and_commit
from fumehood_server.journal.postgres.rows import Rows, known_calls
from fumehood_server.journal.postgres.schema import MIGRATIONS, migrate
from fumehood_server.journal.postgres.statements import KNOWN
from fumehood_server.journal.sql.pruning import next_removal
from fumehood_server.journal.sql.search import first_at
from fumehood_server.journal.store import PruneEvent, PruneEventsEvent, StoreError, load_tree
from fumehood_server.journal.tree import TILE_BITS, TILE_HASHES, Tree

if TYPE_CHECKING:
    from fumehood_server.config.database import Database


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
        with contextlib.ExitStack() as stack, as_store_errors(database):
            self._connection = stack.enter_context(contextlib.closing(connect(database)))
            migrate(self._connection, database)
            hold(self._connection, instance.sidecar, instance.earlier_pid)
            instance.earlier_pid = self._connection.info.backend_pid
            if instance.settings is not None:
                agree(self._connection, instance.settings)
            self._opened = stack.pop_all()

    def write(self, entries: Sequence[Entry]) -> int:
        """See `Store`."""
        with as_store_errors(self.database):
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
                approvals_of(connection, entries),
                events_left(connection, entries),
                quotas_of(connection, entries),
                standing_of(connection, entries),
                runs_of(connection, entries, self._instance.sidecar),
            )
            yield rows
            if rows.events:
                self._instance.in_doubt = _InDoubt([*entries], size, rows.first_body)
            append_and_commit(connection, rows)
            self._instance.in_doubt = None
            self._tree = tree
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
            raise

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
        with as_store_errors(self.database), self._head(()) as rows:
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
        with as_store_errors(self.database), self._head(()) as rows:
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
        with as_store_errors(self.database), self._connection.transaction():
            return [owner for (owner,) in self.rows("SELECT DISTINCT owner FROM calls WHERE end_position IS NULL")]

    @contextlib.contextmanager
    def taking_over(self, owner: str) -> Iterator[bool]:
        """See `Store`."""
        with as_store_errors(self.database), taken_over(self._connection, owner) as taken:
            if taken:
                self._settles.append(owner)
            try:
                yield taken
            finally:
                if taken:
                    self._settles.remove(owner)

    def tree(self) -> Tree:
        """See `Store`."""
        with as_store_errors(self.database), self._connection.transaction():
            row = self._connection.execute("SELECT size FROM head").fetchone()
            return self._up_to(0 if row is None else row[0])

    def add_checkpoint(self, size: int, note: str) -> None:
        """See `Store`. Each sidecar's key has one for each size."""
        sql = (
            "INSERT INTO checkpoints VALUES (%s, %s, %s) ON CONFLICT (size, signer) DO UPDATE SET note = excluded.note"
        )
        with as_store_errors(self.database), self._connection.transaction():
            self._connection.execute(sql, (size, note.partition("\n")[0], note))

    def shrink(self) -> None:
        """Give free space back to the file system.

        Raises:
            StoreError: it takes longer than is waited for, or there is not as much space as it takes meanwhile.
        """
        with as_store_errors(self.database), contextlib.closing(connect(self.database, answer_s=3_600.0)) as connection:
            connection.autocommit = True
            connection.execute("VACUUM FULL events, calls, payloads")

    def close(self) -> None:
        """See `Store`."""
        self._opened.close()
