"""Reads forked runs from the journal, in bounded looks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from fumehood_server.errors import FumehoodError
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.store import EventFilter, Reader, StoredEvent
from fumehood_server.model.events import ExecuteStart
from fumehood_server.model.forks import MAX_CALLS, Fork, ForkCall, OutcomeServed, RunForked

_GIVEN = frozenset({ExecuteStart.TYPE, OutcomeServed.TYPE})
_BOUNDS = Bounds(events=1_000, body_bytes=4 * 1024 * 1024)
_Value = TypeVar("_Value")


class Reads(Protocol):
    """What reads the journal on a thread."""

    def run(self, read: Callable[[Reader], _Value]) -> Awaitable[_Value]:
        """What `read` returns."""


class NotForkableError(FumehoodError):
    """The record does not say enough to answer calls from it, or has nothing of the run."""

    def __init__(self, problem: str, *, found: bool = True) -> None:
        """`found`: whether there is such a run at all."""
        super().__init__(problem)
        self.found = found


async def read_fork(reads: Reads, run_id: str) -> Fork | None:
    """A run that was forked. None: no such fork is recorded.

    Raises:
        StoreError: the journal can't be read.
        NotForkableError: what it goes on from is no longer there.
    """
    record = await reads.run(lambda reader: _events(reader, run_id, RunForked.TYPE, limit=1))
    if not record:
        return None
    data = decode(record[0].body)["data"]
    source, position = str(data["source_run"]), int(data["position"])
    size = await reads.run(lambda reader: reader.size())
    calls = await _calls(reads, source, position)
    later: set[tuple[str, str]] = set()
    async for call in _given(reads, source, Span(position + 1, size)):
        later.add((call.tool, call.arguments_hash))
        if len(later) >= MAX_CALLS:
            break
    served = await reads.run(lambda reader: _events(reader, run_id, OutcomeServed.TYPE, limit=MAX_CALLS))
    given = (decode(each.body)["data"] for each in served)
    return Fork(
        run_id=run_id,
        source_run=source,
        calls=calls,
        later=frozenset(later),
        served={str(each["call_id"]): str(each["source_call_id"]) for each in given},
    )


async def forkable(reads: Reads, source: str, position: int) -> int:
    """How many calls a fork of this run at this event is to give.

    Raises:
        StoreError: the journal can't be read.
        NotForkableError: it can't be forked there.
    """
    found = await reads.run(lambda reader: reader.events(EventFilter(), after=position - 1, limit=1))
    if not found or found[0].position != position:
        raise NotForkableError(f"the journal has no event {position}")
    if decode(found[0].body)["run_id"] != source:
        known = await reads.run(lambda reader: reader.newest_calls(run_id=source, limit=1))
        problem = f'event {position} is not of the run "{source}": fumehood journal show lists its events'
        raise NotForkableError(problem if known else f'no run "{source}" is recorded', found=bool(known))
    calls = await _calls(reads, source, position)
    unknown = next((each for each in calls if not each.arguments_hash), None)
    if unknown is not None:
        problem = f'nothing is kept of the arguments of its call "{unknown.call_id}" (payloads = "off"): '
        raise NotForkableError(problem + "nothing would tell whether a call is the same")
    return len(calls)


async def _calls(reads: Reads, source: str, position: int) -> tuple[ForkCall, ...]:
    calls: list[ForkCall] = []
    async for call in _given(reads, source, Span(0, position + 1)):
        calls.append(call)
        if len(calls) > MAX_CALLS:
            raise NotForkableError(f"it has more than {MAX_CALLS:,} calls up to event {position}")
    return tuple(calls)


async def _given(reads: Reads, source: str, span: Span) -> AsyncIterator[ForkCall]:
    """Calls of a run that began within a span, and those that it was given from the record itself."""
    query = EventQuery(run_id=source, types=_GIVEN)
    rest: Span | None = span

    def read(reader: Reader, span: Span) -> tuple[list[ForkCall], Span | None]:
        found = reader.search(query, span, _BOUNDS)
        starts = [each.subject for each in found.events if each.type == ExecuteStart.TYPE]
        rows = reader.calls(starts) if starts else {}
        calls = []
        for event in found.events:
            data = decode(event.body)["data"]
            if event.type == OutcomeServed.TYPE:
                call_id = str(data["source_call_id"])
            elif event.subject in rows and rows[event.subject].start_position == event.position:
                call_id = event.subject
            else:
                continue  # its id was used again, and stands for that call
            asked_hash = str(data.get("asked_hash") or data["arguments_hash"])
            calls.append(ForkCall(call_id, event.tool, asked_hash, event.position))
        return calls, found.rest

    while rest is not None and not rest.is_empty:
        calls, rest = await reads.run(_bound(read, rest))
        for call in calls:
            yield call


def _bound(read: Callable[[Reader, Span], Any], span: Span) -> Callable[[Reader], Any]:
    return lambda reader: read(reader, span)


def _events(reader: Reader, run_id: str, kind: str, *, limit: int) -> list[StoredEvent]:
    return reader.events(EventFilter(types=frozenset({kind}), subjects=(run_id,)), limit=limit)
