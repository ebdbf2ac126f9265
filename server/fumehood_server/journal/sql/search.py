"""Finds events in the database by an index where one serves, else by looking through a bounded stretch of them.

There is no index by tool, plugin, caller or outcome: each would cost every event that is written, and a stretch of
50,000 is looked through in about 100 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fumehood_server.journal.query import TYPES_OF_CALLS, Bounds, EventQuery, Found, Span
from fumehood_server.journal.sql.columns import NOT_ENDS, NOT_OF_CALLS, OF_APPROVALS, SELECT
from fumehood_server.journal.store import StoredEvent
from fumehood_server.model.run_events import RunStarted

_CALLS = "FROM calls"
_POSITION = "SELECT position FROM events"
_OF_SUBJECT = f"subject <> '' AND {NOT_ENDS}"
"""What the index by subject holds."""
_OF_CALL = "subject = call_id AND position > start_position"
_IN_SPAN = "AND position >= ? AND position < ?"
_PORTION = 256
_WINDOW = 2_048
_FIRST_WINDOW = 64
"""Each next one of a search holds twice as many: PostgreSQL's answer is a whole one, for a page of few events too."""
_MAX_POSITIONS = 20_000
"""Of a run or session, that are collected. One of more events is looked for among all."""


class Timed(Protocol):
    """Where events lie in the order of a time."""

    rising_time: str
    """The column of a time that never falls from one event to the next, and is none before the event's own."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> Iterable[tuple[Any, ...]]:
        """What a statement finds, with `?` for each value."""


class Database(Timed, Protocol):
    """Where the events lie."""

    def most_late_us(self) -> int:
        """How far an event's own time lies behind its rising one, at most."""


@dataclass(frozen=True, slots=True)
class _Portion:
    events: Iterable[StoredEvent]
    """Read as far as they are wanted."""
    last: int
    """The last position, in the order of the search, that was looked at."""
    looked_at: int


def search(database: Database, query: EventQuery, span: Span, bounds: Bounds) -> Found:
    """The first events of a span that fit, and what of the span is left."""
    narrowed = _within_times(database, query, span)
    if narrowed.is_empty:
        return Found((), None)
    positions, is_all = _by_index(database, query, narrowed, bounds.looked_at)
    if positions is None:
        return _first(query, narrowed, bounds, _windows(database, query, narrowed, bounds))
    found = _first(query, narrowed, bounds, _portions(database, positions, narrowed))
    if found.rest is None and not is_all:
        return Found(found.events, narrowed.after(positions[-1]))
    return found


def _first(query: EventQuery, span: Span, bounds: Bounds, portions: Iterator[_Portion]) -> Found:
    """Those that fit, portion by portion."""
    events: list[StoredEvent] = []
    size = looked_at = 0
    for portion in portions:
        looked_at += portion.looked_at
        for event in portion.events:
            if not query.fits(event):
                continue
            if events and size + len(event.body) > bounds.body_bytes:
                return Found(events, span.after(events[-1].position))
            events.append(event)
            size += len(event.body)
            if len(events) >= bounds.events:
                return Found(events, _left(span.after(event.position)))
        if looked_at >= bounds.looked_at:
            return Found(events, _left(span.after(portion.last)))
    return Found(events, None)


def _left(rest: Span) -> Span | None:
    return None if rest.is_empty else rest


def _windows(database: Database, query: EventQuery, span: Span, bounds: Bounds) -> Iterator[_Portion]:
    parts, values = [], []
    for column, wanted in (("tool", query.tool), ("plugin", query.plugin)):
        if wanted:
            parts.append(f" AND {column} = ?")
            values.append(wanted)
    types = sorted(query.wanted_types)
    if types:
        parts.append(f" AND type IN ({_marks(types)})")
        values += types
    sql = f"{SELECT} WHERE position >= ? AND position < ?{''.join(parts)} {_order(span)}"
    window, left = max(_FIRST_WINDOW, bounds.events), bounds.looked_at
    while not span.is_empty:
        size = min(window, left, _WINDOW)
        if span.newest_first:
            start, end = max(span.start, span.end - size), span.end
            last = start
        else:
            start, end = span.start, min(span.end, span.start + size)
            last = end - 1
        rows = database.rows(sql, (start, end, *values))
        yield _Portion((StoredEvent(*row) for row in rows), last, end - start)
        span = span.after(last)
        window, left = window * 2, left - size


def _portions(database: Database, positions: Sequence[int], span: Span) -> Iterator[_Portion]:
    for at in range(0, len(positions), _PORTION):
        some = positions[at : at + _PORTION]
        sql = f"{SELECT} WHERE position IN ({_marks(some)}) {_order(span)}"
        yield _Portion([StoredEvent(*row) for row in database.rows(sql, some)], some[-1], len(some))


def _by_index(database: Database, query: EventQuery, span: Span, limit: int) -> tuple[list[int] | None, bool]:
    """The first positions of a span that an index knows, in order, and whether they are all. None: no index does."""
    if query.call_id:
        found = _of_call(database, query.call_id, span, limit)
    elif query.run_id or query.session_id:
        of_run = _of_run(database, query)
        if of_run is None:
            return None, False
        found = of_run
    elif query.wanted_types and not query.wanted_types & TYPES_OF_CALLS:
        found = _of_types(database, query.wanted_types, span, limit)
    else:
        return None, False
    ordered = sorted((each for each in found if span.start <= each < span.end), reverse=span.newest_first)
    return ordered[:limit], len(ordered) <= limit


def _of_call(database: Database, call_id: str, span: Span, limit: int) -> set[int]:
    """Of the last call of an id, with its approvals."""
    row = next(
        iter(database.rows("SELECT start_position, end_position FROM calls WHERE call_id = ?", (call_id,))), None
    )
    start = span.end if row is None else row[0]
    sql = f"{_POSITION} WHERE subject = ? AND {_OF_SUBJECT} AND {OF_APPROVALS} {_IN_SPAN} {_order(span)} LIMIT ?"
    earlier = database.rows(sql, (call_id, span.start, min(start, span.end), limit + 1))
    found = {each for (each,) in earlier}
    if row is None:
        return found
    sql = f"{_POSITION} WHERE subject = ? AND {_OF_SUBJECT} {_IN_SPAN} {_order(span)} LIMIT ?"
    values = (call_id, max(span.start, row[0]), span.end, limit + 1)
    return found | {each for each in row if each is not None} | {each for (each,) in database.rows(sql, values)}


def _of_run(database: Database, query: EventQuery) -> set[int] | None:
    column, value = ("run_id", query.run_id) if query.run_id else ("session_id", query.session_id)
    of_run = f"calls.{column} = ? AND calls.{column} <> ''"
    found: set[int] = set()
    for sql in (
        f"SELECT start_position {_CALLS} WHERE {of_run} LIMIT ?",
        f"SELECT end_position {_CALLS} WHERE {of_run} AND end_position IS NOT NULL LIMIT ?",
        # CROSS JOIN: calls first, and then the index for each (sqlite.org/optoverview.html).
        f"SELECT position {_CALLS} CROSS JOIN events WHERE {of_run} AND {_OF_CALL} AND {_OF_SUBJECT} LIMIT ?",
        f"{_POSITION} WHERE subject = ? AND {_OF_SUBJECT} LIMIT ?",
    ):
        found.update(each for (each,) in database.rows(sql, (value, _MAX_POSITIONS + 1)))
        if len(found) > _MAX_POSITIONS:
            return None
    return found if query.run_id else _with_runs_of_models(database, value, found)


def _with_runs_of_models(database: Database, session_id: str, found: set[int]) -> set[int] | None:
    """`found`, and the events of the session's runs of models, which lie under their runs' ids. None: too many."""
    sql = f"{SELECT} WHERE type = '{RunStarted.TYPE}' AND {NOT_OF_CALLS} LIMIT ?"
    starts = [StoredEvent(*row) for row in database.rows(sql, (_MAX_POSITIONS + 1,))]
    if len(starts) > _MAX_POSITIONS:
        return None
    query = EventQuery(session_id=session_id)
    for run_id in {each.subject for each in starts if query.fits(each)}:
        sql = f"{_POSITION} WHERE subject = ? AND {_OF_SUBJECT} LIMIT ?"
        found.update(each for (each,) in database.rows(sql, (run_id, _MAX_POSITIONS + 1)))
        if len(found) > _MAX_POSITIONS:
            return None
    return found


def _of_types(database: Database, types: frozenset[str], span: Span, limit: int) -> set[int]:
    sql = f"{_POSITION} WHERE type = ? AND {NOT_OF_CALLS} {_IN_SPAN} {_order(span)} LIMIT ?"
    found: set[int] = set()
    for each in types:
        found.update(row[0] for row in database.rows(sql, (each, span.start, span.end, limit + 1)))
    return found


def _order(span: Span) -> str:
    return f"ORDER BY position {'DESC' if span.newest_first else 'ASC'}"


def _within_times(database: Database, query: EventQuery, span: Span) -> Span:
    """The span outside of which nothing is of the times asked for."""
    start, end = span.start, span.end
    if query.since_us:
        start = first_at(database, query.since_us, start, end)
    if query.until_us:
        end = first_at(database, query.until_us + database.most_late_us(), start, end)
    return Span(start, end, span.newest_first)


def first_at(database: Timed, time_us: int, start: int, end: int) -> int:
    """A position in `start` to `end` from which on no event's rising time is before a time, and all before it are.

    Found by halves. Where events were removed, the next one counts.
    """
    sql = f"SELECT {database.rising_time} FROM events WHERE position >= ? ORDER BY position LIMIT 1"
    while start < end:
        middle = (start + end) // 2
        row = next(iter(database.rows(sql, (middle,))), None)
        if row is not None and row[0] < time_us:
            start = middle + 1
        else:
            end = middle
    return start


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
