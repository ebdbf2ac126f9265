"""What is told before it is on disk gets there within a group's time, and before anything is signed over it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from fumehood_server.journal.entry import Entry
from fumehood_server.journal.journal import StoredJournal
from fumehood_server.journal.sqlite import SqliteReader, SqliteStore
from fumehood_server.journal.store import EventFilter, Store
from fumehood_server.journal.writer import WriterSettings

from .bench import ATTEMPT, about, end, start

BOUND_S = 60
NEVER_S = 3_600.0


class ToldStore(SqliteStore):
    """Says what is asked of it, and how SQLite has it."""

    def __init__(self, path: Path, told: list[str]) -> None:
        super().__init__(path)
        self.told = told

    def write(self, entries: Sequence[Entry]) -> int:
        self.told.append("write")
        return super().write(entries)

    def write_unsynced(self, entries: Sequence[Entry]) -> int:
        self.told.append("write_unsynced")
        return super().write_unsynced(entries)

    def sync(self) -> None:
        super().sync()
        self.told.append("sync")

    @property
    def level(self) -> int:
        """1 is NORMAL, 2 is FULL."""
        return int(self.rows("PRAGMA synchronous").fetchone()[0])


@contextlib.asynccontextmanager
async def journal_of(folder: Path, told: list[str], **settings: float) -> AsyncIterator[StoredJournal]:
    def upkeep(store: Store) -> None:
        assert isinstance(store, ToldStore)
        told.append(f"signed at level {store.level}")

    path = folder / "journal.db"
    async with StoredJournal(
        lambda: ToldStore(path, told),
        lambda: SqliteReader(path),
        sidecar="0a",
        on_state=lambda _: None,
        window_s=0,
        upkeep=upkeep,
        settings=WriterSettings(**settings),  # type: ignore[arg-type] # times alone
        commit_s=BOUND_S,
    ) as journal:
        yield journal


async def until(told: list[str], what: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while what not in told:  # noqa: ASYNC110 - nothing tells what another thread has done
            await asyncio.sleep(0.002)


async def test_it_is_synced_once_the_group_is_due_though_nothing_follows(tmp_path: Path) -> None:
    told: list[str] = []
    async with journal_of(tmp_path, told, upkeep_s=NEVER_S) as journal:
        await journal.commit(start(), about("a"), (b"{}",), lasting=False)
        with contextlib.closing(SqliteReader(tmp_path / "journal.db")) as reader:
            assert len(reader.events(EventFilter(), limit=9)) == 1
        await until(told, "sync")
        assert told == ["write_unsynced", "sync"]


async def test_the_next_lasting_commit_takes_it_along(tmp_path: Path) -> None:
    told: list[str] = []
    async with journal_of(tmp_path, told, group_s=NEVER_S, upkeep_s=NEVER_S) as journal:
        await journal.commit(start(), about("a"), (b"{}",), lasting=False)
        await journal.commit(ATTEMPT, about("a"))
        journal.record(end(), about("a"), (b"[]",))
    assert told == ["write_unsynced", "write", "write", "signed at level 2"]


async def test_nothing_is_signed_over_what_could_be_taken_back(tmp_path: Path) -> None:
    told: list[str] = []
    async with journal_of(tmp_path, told, group_s=NEVER_S, upkeep_s=0.0) as journal:
        await journal.commit(start(), about("a"), (b"{}",), lasting=False)
        await until(told, "signed at level 2")
        assert told == ["write_unsynced", "sync", "signed at level 2"]
        await journal.commit(start(), about("b"), (b"{}",), lasting=False)
    assert told.count("sync") == 2
