"""A run is read a page at a time: a long one takes no more memory than a short one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.sqlite import SqliteReader
from fumehood_server.replay.record import PAGE_BYTES, RunPages, read_run

from tests.journal.test_large import MARGIN_BYTES, grown

from .runs import RUN, journal_of_run

RESULT_BYTES = 100_000
CALLS = 900


@pytest.fixture(scope="module")
def long_run() -> Iterator[Path]:
    with journal_of_run(CALLS, RESULT_BYTES) as config:
        yield config


def test_a_long_run_is_replayed_in_the_memory_of_a_short_one(long_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with journal_of_run(20, RESULT_BYTES) as short:
        assert CALLS * RESULT_BYTES > 2 * MARGIN_BYTES
        commands = (("replay", RUN), ("replay", RUN, "-o", str(file)))
        assert grown(long_run, short, commands) == {}


def test_pages_have_every_call_once_in_order_and_end(long_run: Path) -> None:
    reader = SqliteReader(long_run.with_name(".fumehood") / JOURNAL_NAME)
    assert [each.call_id for each in read_run(reader, RUN)] == [f"call-{number}" for number in range(CALLS)]
    pages = RunPages(RUN)
    sizes = []
    while not pages.done:
        sizes.append(sum(each.size for each in pages.read(reader)))
    assert max(sizes) < PAGE_BYTES + 3 * RESULT_BYTES
    (one,) = read_run(reader, "call-7")
    assert one.call_id == "call-7"
    assert [*read_run(reader, "nothing")] == []
