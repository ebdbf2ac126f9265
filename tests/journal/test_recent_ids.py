"""Ids that are new are known without reading the journal; none that is there is ever taken for new."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from pathlib import Path

import pytest
from fumehood_server.errors import JournalUnavailableError
from fumehood_server.journal.recent_ids import RecentIds, words_of
from fumehood_server.journal.writer import WriterSettings

from .bench import ATTEMPT, about, end, start
from .test_writer import STARTED, Kept, until

RESULT = b'{"content":[],"details_json":"1","terminate":false,"error":null}'


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_id_that_is_there_is_never_taken_for_new_and_hardly_any_new_one_for_known() -> None:
    ids = RecentIds(60.0)
    known = [secrets.token_hex(8) for _ in range(20_000)]
    ids.load(words_of(known[:10_000]))
    for each in known[10_000:]:
        ids.add(each)
    assert all(map(ids.may_hold, known))
    assert sum(ids.may_hold(secrets.token_hex(8)) for _ in range(10_000)) < 10


def test_every_id_may_be_there_until_those_of_earlier_sidecars_are_read() -> None:
    ids = RecentIds(60.0)
    assert ids.may_hold("a")
    ids.load(words_of(["b"]))
    assert (ids.may_hold("a"), ids.may_hold("b")) == (False, True)


def test_an_id_is_known_for_the_window_and_forgotten_within_twice_that() -> None:
    clock = Clock()
    ids = RecentIds(60.0, clock=clock)
    ids.load(words_of(["early"]))
    clock.now = 59.0
    ids.add("late")
    clock.now = 118.0
    ids.add("other")
    assert ids.may_hold("late"), "59 s old"
    assert not ids.may_hold("early")
    clock.now = 180.0
    ids.add("another")
    assert not ids.may_hold("late")


def test_no_filter_is_made_for_each_id_where_the_window_is_nothing() -> None:
    clock = Clock()
    ids = RecentIds(0.0, clock=clock)
    ids.load(words_of(()))
    names = [f"call-{number}" for number in range(100)]
    for each in names:
        ids.add(each)
        clock.now += 0.5
    assert all(map(ids.may_hold, names))
    assert not ids.may_hold("new")
    clock.now += 120.0
    for each in ("later", "last"):
        ids.add(each)
        clock.now += 60.0
    assert not any(map(ids.may_hold, names))


async def test_a_new_id_is_not_looked_up_and_a_recorded_one_is(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    async with kept.open(WriterSettings(retry_s=0.05), commit_s=30.0) as journal:
        await journal.commit(STARTED)
        await until(lambda: not journal._recent.may_hold("unknown"))
        journal.record(start(), about("known"), (b"{}",))
        assert await journal.recent("known") is not None
        with contextlib.closing(sqlite3.connect(kept.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing can be written
            journal.record(start(), about("later"), (b"{}",))
            assert await journal.recent("unknown") is None
            assert await journal.recent("known") is not None, "it is on disk, so nobody waits for the others"
            journal._commit_s = 0.5
            with pytest.raises(JournalUnavailableError):
                await journal.recent("later")
            with pytest.raises(JournalUnavailableError):
                await journal.commit(ATTEMPT, about("known"))
            with pytest.raises(JournalUnavailableError):
                await journal.recent("known")


async def test_ids_of_an_earlier_sidecar_are_known_to_the_next_within_the_window(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    async with kept.open() as journal:
        for name in ("a", "b"):
            journal.record(start(), about(name), (b"{}",))
            journal.record(end(RESULT), about(name), (RESULT,))
    async with kept.open() as journal:
        await until(lambda: not journal._recent.may_hold("unknown"))
        assert journal._recent.may_hold("a")
        found = await journal.recent("b")
        assert found is not None
        assert found.outcome is not None
    async with kept.open(window_s=0.0) as journal:
        await until(lambda: not journal._recent.may_hold("unknown"))
        assert await journal.recent("a") is None
