"""Reads the journal from its SQLite file, beside the writer: sees what is committed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from fumehood_server.journal.sql import SqlReader
from fumehood_server.journal.sqlite.database import as_store_errors, check_version, connect


class SqliteReader(SqlReader):
    """Reads beside the writer: sees what is committed."""

    def __init__(self, path: Path) -> None:
        """Open the file for reading.

        Raises:
            StoreError: it can't be.
            NewerJournalError: a newer sidecar wrote it.
        """
        self.path = path
        with contextlib.ExitStack() as stack, as_store_errors(path):
            self._connection = stack.enter_context(contextlib.closing(connect(path, readonly=True)))
            check_version(self._connection, path)
            stack.pop_all()

    def rows(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """See `SqlReader`."""
        return self._connection.execute(sql, values)

    def as_store_errors(self) -> contextlib.AbstractContextManager[None]:
        """See `SqlReader`."""
        return as_store_errors(self.path)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """See `Reader`. What is written meanwhile stays in the write-ahead log until the end of the block."""
        with as_store_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                self.size()  # a transaction sees what was committed before its first read
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """See `Reader`."""
        self._connection.close()
