"""A journal of each earlier schema is brought to this one, whole or not at all, and a newer one is refused."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from fumehood_evidence.note import Verifier
from fumehood_server.journal.sqlite import MIGRATIONS, SqliteReader, SqliteStore
from fumehood_server.journal.store import NewerJournalError, StoreError
from fumehood_server.journal.verify import verify

from .bench import Clock, entries

SCHEMAS = sorted((Path(__file__).parent / "schemas").glob("*.sql"))


def restored(schema: Path, path: Path) -> Verifier:
    """The journal of a dump, and its key."""
    text = schema.read_text()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
    return Verifier.parse(text.partition("\n")[0].removeprefix("-- "))


def version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def schema_of(path: Path) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {(name, " ".join(sql.split())) for name, sql in rows}


def test_there_is_a_journal_of_each_schema() -> None:
    assert [each.stem for each in SCHEMAS] == [f"schema-{version}" for version in range(1, len(MIGRATIONS) + 1)]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda each: each.stem)
def test_a_journal_of_an_earlier_schema_goes_on_as_one_of_this(schema: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    key = restored(schema, path)
    with contextlib.closing(SqliteStore(path)) as store:
        clock = Clock()
        for _ in range(100):
            clock()
        store.write([*entries(5, clock=clock, first=3)])
    SqliteStore(tmp_path / "new.db").close()
    assert schema_of(path) == schema_of(tmp_path / "new.db")
    assert version_of(path) == len(MIGRATIONS)
    with contextlib.closing(SqliteReader(path)) as reader:
        found = verify(reader, [key])
    assert (found.events, found.signed, found.payloads, found.fault) == (25, 10, 16, None)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    restored(SCHEMAS[0], path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE events_by_type (in_the_way INTEGER)")
    before = schema_of(path)
    with pytest.raises(StoreError, match="events_by_type"):
        SqliteStore(path)
    assert (version_of(path), schema_of(path)) == (1, before)


def test_a_newer_journal_is_neither_written_nor_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    restored(SCHEMAS[-1], path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    for open_it in (SqliteStore, SqliteReader):
        with pytest.raises(NewerJournalError, match="run the newer sidecar"):
            open_it(path)
