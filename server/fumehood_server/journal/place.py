"""Where a journal lies: a file in the state folder, or a database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.postgres.driver import check_driver
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.store import NoJournalError, Reader, Store

if TYPE_CHECKING:
    from fumehood_server.config.database import Database


class Place(Protocol):
    """Opens the journal, as often as is needed."""

    @property
    def shared(self) -> bool:
        """Whether several sidecars may write it."""

    def open_store(self, sidecar: str) -> Store:
        """For the one thread of a sidecar that writes.

        Raises:
            StoreError: it can't be opened.
            NewerJournalError: a newer sidecar wrote it.
        """

    def open_reader(self) -> Reader:
        """For one thread.

        Raises:
            NoJournalError: there is none yet.
            StoreError: it can't be opened.
            NewerJournalError: a newer sidecar wrote it.
        """

    def for_process(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What `verify_process` makes it of in another process, and the environment that this one takes."""


class FilePlace:
    """A SQLite file."""

    shared = False

    def __init__(self, path: Path) -> None:
        """It need not be there."""
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def open_store(self, sidecar: str) -> SqliteStore:  # noqa: ARG002 - as in the protocol
        """See `Place`."""
        return SqliteStore(self.path)

    def open_reader(self) -> SqliteReader:
        """See `Place`."""
        if not self.path.exists():
            raise NoJournalError(f"there is no journal {self.path}: unable to open the file")
        return SqliteReader(self.path)

    def for_process(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """See `Place`. No environment: an operator may keep secrets there."""
        return {"path": str(self.path)}, {}


class DatabasePlace:
    """A PostgreSQL database."""

    shared = True

    def __init__(self, database: Database, *, window_s: float = 0.0, keep_events_d: float | None = None) -> None:
        """`window_s`: how long a call's id stands for that call. For who writes.

        `keep_events_d`: days after which whole events are removed. Given, both must be the same at all sidecars.

        Raises:
            DriverMissingError: psycopg isn't installed.
        """
        check_driver()
        from fumehood_server.journal.postgres.agreement import SharedSettings  # noqa: PLC0415 - imports the extra
        from fumehood_server.journal.postgres.reader import PostgresReader  # noqa: PLC0415 - likewise
        from fumehood_server.journal.postgres.store import Instance, PostgresStore  # noqa: PLC0415 - likewise

        self.database = database
        self._reader, self._store, self._instance = PostgresReader, PostgresStore, Instance
        self._window_us = round(window_s * 1e6)
        self._settings = None if keep_events_d is None else SharedSettings(round(window_s), keep_events_d)
        self._instances: dict[str, Instance] = {}

    def __str__(self) -> str:
        return str(self.database)

    def open_store(self, sidecar: str) -> Store:
        """See `Place`."""
        instance = self._instances.setdefault(sidecar, self._instance(sidecar, self._window_us, self._settings))
        return self._store(self.database, instance)

    def open_reader(self) -> Reader:
        """See `Place`."""
        return self._reader(self.database)

    def for_process(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """See `Place`. What libpq reads besides the URL is in variables of its own, and in the user's folder."""
        url, password = self.database.reveal()
        environment = {name: value for name, value in os.environ.items() if name.startswith("PG") or name == "HOME"}
        return {"url": url, "password": password}, environment


def place_of(
    state_dir: Path, database: Database | None, *, window_s: float = 0.0, keep_events_d: float | None = None
) -> Place:
    """The journal's place. The settings are for a sidecar: see `DatabasePlace`.

    Raises:
        DriverMissingError: psycopg isn't installed, and it lies in PostgreSQL.
    """
    if database is None:
        return FilePlace(state_dir / JOURNAL_NAME)
    return DatabasePlace(database, window_s=window_s, keep_events_d=keep_events_d)
