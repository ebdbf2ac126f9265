"""Threads that read the journal: no call waits for who looks through it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fumehood_server.journal.place import FilePlace
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.sqlite import SqliteStore
from fumehood_server.journal.store import Reader, StoreError

BOUND_S = 30.0


@pytest_asyncio.fixture
async def reads(tmp_path: Path) -> AsyncIterator[JournalReads]:
    path = tmp_path / "journal.db"
    SqliteStore(path).close()
    found = JournalReads(FilePlace(path), list)
    yield found
    await asyncio.to_thread(found.close)


async def test_connection_that_the_database_has_closed_meanwhile_is_made_anew(
    reads: JournalReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(reader: Reader) -> Reader:
        reader.close()
        return reader

    monkeypatch.setattr("fumehood_server.journal.reads.IDLE_S", BOUND_S)
    await reads.search(close)
    with pytest.raises(StoreError):
        await reads.search(lambda reader: reader.size())  # control: one that was just used isn't tried first
    closed = await reads.search(close)
    monkeypatch.setattr("fumehood_server.journal.reads.IDLE_S", -1.0)
    assert await reads.search(lambda reader: (reader is closed, reader.size())) == (False, 0)
    kept = await reads.search(lambda reader: reader)
    assert await reads.search(lambda reader: reader is kept), "control: one that can be used stays"


async def test_no_call_waits_for_a_search(reads: JournalReads) -> None:
    go_on = threading.Event()

    def look(reader: Reader) -> int:
        assert go_on.wait(BOUND_S)
        return reader.size()

    searches = [asyncio.create_task(reads.search(look)) for _ in range(24)]
    async with asyncio.timeout(BOUND_S):
        try:
            assert await reads.run(lambda reader: reader.size()) == 0
            assert not any(each.done() for each in searches)
        finally:
            go_on.set()
        assert await asyncio.gather(*searches) == [0] * 24
