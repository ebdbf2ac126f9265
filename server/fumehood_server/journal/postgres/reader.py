"""Reads the journal from PostgreSQL: sees what any sidecar has committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fumehood_server.journal.postgres.connection import as_store_errors, connect
from fumehood_server.journal.postgres.schema import check_version, version_of
from fumehood_server.journal.sql import SqlReader
from fumehood_server.journal.store import NoJournalError

if TYPE_CHECKING:
    from fumehood_server.config.database import Database

_PORTION = 256


class PostgresReader(SqlReader):
    """For any one thread at a time. Its statements are prepared by psycopg, after some uses."""

    rising_time = "reached_us"
    shared = True
    _owner: ClassVar[str] = "calls.owner"

    def __init__(self, database: Database) -> None:
        """Connect.

        Raises:
            StoreError: the database can't be used.
            NoJournalError: there is none in it.
            NewerJournalError: a newer sidecar wrote it.
        """
        self.database = database
        with contextlib.ExitStack() as stack, as_store_errors(database):
            self._connection = stack.enter_context(contextlib.closing(connect(database, readonly=True)))
            found = version_of(self._connection)
            if found is None:
                raise NoJournalError(f"there is no journal in {database}")
            check_version(found, database)
            stack.pop_all()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """See `SqlReader`."""
        # Binary: a body as text would be twice as long.
        return self._connection.execute(sql.replace("?", "%s").encode(), values, binary=True).fetchall()

    def as_store_errors(self) -> contextlib.AbstractContextManager[None]:
        """See `SqlReader`."""
        return as_store_errors(self.database)

    def least_time_us(self) -> int:
        """See `Reader`. Any: each sidecar has a clock of its own, and `reached_us` is what events are found by."""
        return 0

    def most_late_us(self) -> int:
        """See `SqlReader`."""
        return int(self._one("SELECT late_us FROM head"))

    def documents(self) -> Iterator[tuple[bytes, bytes]]:
        """See `Reader`."""
        last = b""
        while True:
            sql = "SELECT digest, data FROM documents WHERE digest > ? ORDER BY digest LIMIT ?"
            with as_store_errors(self.database):
                rows = self.rows(sql, (last, _PORTION))
            yield from ((digest, data) for digest, data in rows)
            if len(rows) < _PORTION:
                return
            last = rows[-1][0]

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """See `Reader`."""
        after = -1, ""
        while True:
            sql = "SELECT size, signer, note FROM checkpoints WHERE (size, signer) > (?, ?) ORDER BY 1, 2 LIMIT ?"
            with as_store_errors(self.database):
                rows = self.rows(sql, (*after, _PORTION))
            yield from ((size, note) for size, _, note in rows)
            if len(rows) < _PORTION:
                return
            after = rows[-1][0], rows[-1][1]

    def checkpoint(self, size: int, *, signer: str = "") -> str | None:
        """See `Reader`."""
        sql = "SELECT note FROM checkpoints WHERE size >= ? AND (signer = ? OR ? = '') ORDER BY size DESC LIMIT 1"
        found: str | None = self._one(sql, size, signer, signer)
        return found

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within the block all that is read is as it was at one moment, whatever is written meanwhile."""
        with as_store_errors(self.database), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield

    def close(self) -> None:
        """See `Reader`."""
        self._connection.close()
