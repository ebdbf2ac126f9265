"""A filter finds the same events by an index as by looking at each, in both orders and whatever the pages."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.place import Place
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.sql import search
from fumehood_server.journal.sql.columns import NOT_OF_CALLS
from fumehood_server.journal.sqlite import MIGRATIONS, SqliteStore
from fumehood_server.journal.store import Reader, StoredEvent
from fumehood_server.model.events import About, EventsLost, ExecuteCancelled, Fault
from fumehood_server.model.run_events import LifecycleTransition, RunStarted

from .bench import ATTEMPT, STARTED_US, Clock, end, entries, start, written

MIB = 1024 * 1024
FAULT = Fault(code="TOOL_TIMEOUT", category="tool", retryable=True, message="took too long")


def odd_entries(clock: Clock) -> Iterator[Entry]:
    """A call of another session, caller, tool and plugin that times out, and something rare."""
    about = About(
        call_id="odd",
        run_id="odd-run",
        tool="fetch",
        plugin="web",
        context={"request_id": "odd-run", "session_id": "s"},
    )
    started = start()
    started.caller = "ipv4:10.0.0.1:99"
    ended = end(error=FAULT)
    cancelled = ExecuteCancelled(error=FAULT, outcome_unknown=False, result=None, attempts=1)
    for number, event in enumerate((started, ATTEMPT, ended), 1):
        yield encode(event, about, time_us=clock(), sidecar="0a0b0c0d", number=number)
    yield encode(EventsLost(count=3, reason="full"), About(), time_us=clock(), sidecar="0a0b0c0d")
    yield encode(EventsLost(count=4, reason="full"), About(run_id="odd-run"), time_us=clock(), sidecar="0a0b0c0d")
    for number, event in enumerate((start(), cancelled), 1):
        other = About(call_id="cancelled", tool="fetch", plugin="web")
        yield encode(event, other, time_us=clock(), sidecar="0a0b0c0d", number=number)


def run_entries(clock: Clock) -> Iterator[Entry]:
    """A run of a model, in a session, that has called nothing."""
    about = About(run_id="asking", context={"request_id": "asking", "session_id": "talk"})
    started = RunStarted(
        mode="chat",
        engine="e",
        request_hash="",
        request=None,
        tools="",
        caller="",
        authenticated_by="",
        configuration="",
    )
    for event in (started, LifecycleTransition(from_state="INIT", to_state="PREPARE", attempt=0, reason="")):
        yield encode(event, about, time_us=clock(), sidecar="0a0b0c0d")


@pytest.fixture(scope="module")
def reader(module_place: Place) -> Iterator[Reader]:
    clock = Clock()
    many = [*entries(400, clock=clock)]
    written(module_place, [many, [*odd_entries(clock)], [*entries(400, clock=clock, first=400), *run_entries(clock)]])
    with contextlib.closing(module_place.open_reader()) as reader:
        yield reader


def everything(
    reader: Reader, query: EventQuery, bounds: Bounds, *, newest_first: bool = False, start: int = 0
) -> tuple[list[StoredEvent], int]:
    """All that fits, page by page, and how many pages."""
    found: list[StoredEvent] = []
    span: Span | None = Span(start, reader.size(), newest_first)
    for pages in itertools.count(1):
        assert span is not None
        page = reader.search(query, span, bounds)
        assert len(page.events) <= bounds.events
        found += page.events
        if page.rest is None:
            return found, pages
        span = page.rest
    raise AssertionError


QUERIES = {
    "everything": (EventQuery(), 2410),
    "a call": (EventQuery(call_id="call-00000500"), 3),
    "a call there is not": (EventQuery(call_id="nothing"), 0),
    "a run": (EventQuery(run_id="run-60"), 30),
    "a run with an event of its own": (EventQuery(run_id="odd-run"), 4),
    "a session": (EventQuery(session_id="s"), 3),
    "a session of a run of a model": (EventQuery(session_id="talk"), 2),
    "a session and another run": (EventQuery(session_id="s", run_id="run-1"), 0),
    "a rare type": (EventQuery(types=frozenset({"events_lost", "sidecar_started"})), 3),
    "a rare and a common type": (EventQuery(types=frozenset({"events_lost", "execute_attempt"})), 803),
    "a type that there is not": (EventQuery(types=frozenset({"x"})), 0),
    "a tool": (EventQuery(tool="fetch"), 5),
    "a plugin and a type": (EventQuery(plugin="web", types=frozenset({"execute_end"})), 1),
    "a caller": (EventQuery(caller="ipv4:10.0.0.1:99"), 1),
    "an error": (EventQuery(outcomes=frozenset({"TOOL_TIMEOUT"})), 2),
    "an error of a type": (EventQuery(outcomes=frozenset({"TOOL_TIMEOUT"}), types=frozenset({"execute_end"})), 1),
    "an error of what is no end": (
        EventQuery(outcomes=frozenset({"TOOL_TIMEOUT"}), types=frozenset({"events_lost"})),
        0,
    ),
    "successes": (EventQuery(outcomes=frozenset({"OK"})), 800),
    "from a time on": (EventQuery(since_us=STARTED_US + 2400), 11),
    "up to a time": (EventQuery(until_us=STARTED_US + 6), 5),
    "a tool at a time": (EventQuery(tool="fetch", until_us=STARTED_US + 1205), 3),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_filter_finds_what_fits_in_every_page_size_and_order(reader: Reader, name: str) -> None:
    query, count = QUERIES[name]
    whole, _ = everything(reader, query, Bounds(100_000, 100 * MIB, 100_000))
    assert len(whole) == count
    assert [event.position for event in whole] == sorted({event.position for event in whole})
    for bounds in (Bounds(31, MIB, 100_000), Bounds(1000, 10_000, 100_000), Bounds(1000, MIB, 100)):
        assert everything(reader, query, bounds)[0] == whole
        assert everything(reader, query, bounds, newest_first=True)[0] == whole[::-1]


def test_a_filter_that_nothing_fits_is_answered_in_bounded_looks(reader: Reader) -> None:
    query = EventQuery(caller="nobody")
    page = reader.search(query, Span(0, reader.size()), Bounds(100, MIB, 1000))
    assert (page.events, page.rest) == ([], Span(1000, reader.size()))
    assert everything(reader, query, Bounds(100, MIB, 1000)) == ([], 3)
    assert everything(reader, query, Bounds(100, MIB)) == ([], 1)


def test_a_run_of_very_many_calls_is_found_by_looking_at_all(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_MAX_POSITIONS", 20)
    for name in ("a run", "a session", "a session of a run of a model", "a run with an event of its own"):
        query, count = QUERIES[name]
        assert len(everything(reader, query, Bounds(1000, MIB))[0]) == count


def test_an_index_of_types_is_there_in_a_journal_of_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1;")
    connection.close()
    written(path, [[*entries(3)]])
    with sqlite3.connect(path) as connection:
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT position FROM events WHERE type = ? AND {NOT_OF_CALLS} "  # noqa: S608 - ours
            "ORDER BY position DESC",
            ("sidecar_started",),
        ).fetchall()
    connection.close()
    assert "events_by_type" in plan[0][3]
    assert "SORT" not in str(plan).upper() or "TEMP" not in str(plan).upper()
    SqliteStore(path).close()
