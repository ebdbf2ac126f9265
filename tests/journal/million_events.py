"""A million events in each of the databases: `make test-large`."""

from __future__ import annotations

import contextlib
import time

import pytest
from fumehood_server.config.database import Database
from fumehood_server.journal.place import place_of
from fumehood_server.journal.pruned import pruned_so_far
from fumehood_server.journal.query import Bounds, EventQuery, Span

from .test_large import COMMANDS, MORE_COMMANDS, grown, journal_of

PRUNE = (
    ("prune", "--before", "2d"),
    ("prune", "--before", "2d", "--events", "--shrink"),
)
LOOK_S = 5.0
"""For one look into the journal, whatever is asked: some 0.2 s on an idle machine."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_million_events_are_read_in_the_memory_of_few_and_each_look_is_bounded(
    store: str, request: pytest.FixtureRequest
) -> None:
    def new_url() -> str:
        return "" if store == "sqlite" else str(request.getfixturevalue("postgres_server").new_database())

    url = new_url()
    with journal_of(1_000_000, url) as large, journal_of(3_000, new_url()) as small:
        place = place_of(large.with_name(".fumehood"), Database(url) if url else None)
        with contextlib.closing(place.open_reader()) as reader:
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
        with journal_of(3_000, new_url()) as few:
            assert grown(large, few, (*PRUNE, ("verify",))) == {}
        with contextlib.closing(place.open_reader()) as reader:
            assert pruned_so_far(reader).removed > 1_000_000 - 4096
