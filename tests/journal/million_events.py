"""A million events: `make test-large`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from fumehood_server.journal import JOURNAL_NAME
from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.sqlite import SqliteReader

from .test_large import COMMANDS, MORE_COMMANDS, grown, journal_of, small

__all__ = ["small"]

PRUNE = (
    ("prune", "--before", "2d"),
    ("prune", "--before", "2d", "--events", "--shrink"),
)
LOOK_S = 5.0
"""For one look into the journal, whatever is asked: some 0.2 s on an idle machine."""


@pytest.mark.timeout(900)
def test_a_million_events_are_read_in_the_memory_of_few_and_each_look_is_bounded(small: Path) -> None:
    with journal_of(1_000_000) as large:
        with contextlib.closing(SqliteReader(large.with_name(".fumehood") / JOURNAL_NAME)) as reader:
            for query in (
                EventQuery(caller="nobody"),
                EventQuery(run_id="run-9999"),
                EventQuery(types=frozenset({"sidecar_started"})),
                EventQuery(tool="nothing", since_us=1),
            ):
                for newest_first in (False, True):
                    begun = time.monotonic()
                    reader.search(query, Span(0, reader.size(), newest_first), Bounds(1000, 3 << 20))
                    assert time.monotonic() - begun < LOOK_S
        assert grown(large, small, (*COMMANDS, *MORE_COMMANDS)) == {}
        with journal_of(3_000) as few:
            assert grown(large, few, (*PRUNE, ("verify",))) == {}
        with contextlib.closing(SqliteReader(large.with_name(".fumehood") / JOURNAL_NAME)) as reader:
            assert pruned_so_far(reader).removed > 1_000_000 - 4096
