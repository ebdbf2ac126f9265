"""The calls of a run as the journal has them: what each was given, what it took from outside, and what it returned.

They are read a page at a time, so that a run of any length takes the memory of one page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.query import Bounds, EventQuery, Span
from fumehood_server.journal.recorded import read_call
from fumehood_server.journal.store import Reader, StoredEvent, read_payload
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.events import ExecuteCancelled, ExecuteEnd, ExecuteStart, ExecuteValues
from fumehood_server.model.recorded import RecordedCall
from fumehood_server.model.taken_values import TakenValues
from fumehood_server.model.taxonomy import Code

PAGE_CALLS = 64
PAGE_BYTES = 1024 * 1024
"""Of arguments, values and results, above which a page has no further call."""
_STARTS = frozenset({ExecuteStart.TYPE})
_BOUNDS = Bounds(events=1_000, body_bytes=PAGE_BYTES)
_ENDS = (ExecuteEnd.TYPE, ExecuteCancelled.TYPE)

_BY_THE_TOOL = frozenset({Code.TOOL_EXECUTION_FAILED, Code.CONSTRAINT_SCHEMA_INVALID, Code.CONSTRAINT_JSON_INVALID})
"""Errors that a tool makes itself. All others are the sidecar's, a deadline's or a caller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayableCall:
    """One recorded call."""

    call_id: str
    tool: str
    """As its caller named it."""
    plugin: str
    plugin_digest: str
    definition_digest: str
    context: Mapping[str, str] = field(default_factory=dict)
    arguments: bytes | None
    """As the plugin got them. None: they are not kept."""
    values: TakenValues | None
    """What it took from outside. None: that is not kept."""
    recorded: RecordedCall
    """Where it stands, and what its caller got."""
    result: bytes | None
    """What its caller got, as it was recorded. None: it is not kept."""

    @property
    def outcome(self) -> CallOutcome | None:
        """What its caller got. None: it has none yet."""
        return self.recorded.outcome

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        values = () if self.values is None else self.values.values
        taken = sum(len(each.value_json) + len(each.error_json) + len(each.name) for each in values)
        return len(self.arguments or b"") + 2 * len(self.result or b"") + taken


def read_run(reader: Reader, subject: str) -> Iterator[ReplayableCall]:
    """The calls of a run, see `RunPages`, one after the other.

    Raises:
        StoreError: the journal can't be read.
    """
    pages = RunPages(subject)
    while not pages.done:
        yield from pages.read(reader)


class RunPages:
    """The calls of a run (a request_id, else a session_id), in the order in which they began; or one call by its id.

    Those that began before the first page is read. Each page is one bounded look into the journal, by any reader.
    """

    def __init__(self, subject: str) -> None:
        """`done` once there is no further page."""
        self.done = False
        self._subject = subject
        self._queries = [EventQuery(session_id=subject, types=_STARTS), EventQuery(run_id=subject, types=_STARTS)]
        """What is to be looked for yet, the last one now."""
        self._span: Span | None = None
        self._rest: Span | None = None
        self._waiting: deque[tuple[str, int]] = deque()
        """Calls that were found and are not read yet: their ids, and where they began."""

    def read(self, reader: Reader) -> list[ReplayableCall]:
        """The next page. It may be empty while more are to come.

        Raises:
            StoreError: the journal can't be read.
        """
        if self._span is None:
            if self._subject in reader.calls([self._subject]):
                self.done = True
                return [_read(reader, self._subject)]
            self._span = self._rest = Span(0, reader.size())
        if not self._waiting:
            self._find(reader)
        page: list[ReplayableCall] = []
        size = 0
        while self._waiting and len(page) < PAGE_CALLS and size < PAGE_BYTES:
            call_id, began = self._waiting.popleft()
            row = reader.calls([call_id]).get(call_id)
            if row is not None and row.start_position == began:  # else its id was used again, and stands for that call
                page.append(_read(reader, call_id))
                size += page[-1].size
        self.done = not self._waiting and not self._queries
        return page

    def _find(self, reader: Reader) -> None:
        if self._rest is None:
            return
        found = reader.search(self._queries[-1], self._rest, _BOUNDS)
        if found.events:
            self._queries = self._queries[-1:]
            self._waiting.extend((each.subject, each.position) for each in found.events)
        self._rest = found.rest
        if self._rest is None:
            self._queries.pop()
            self._rest = self._span if self._queries else None


def why_not(call: ReplayableCall) -> str:
    """Why a call can't be run again. Empty: it can."""
    outcome = call.outcome
    if outcome is None:
        return "it has no outcome yet"
    if not outcome.attempts:
        return "it was never sent to its tool"
    if outcome.error is not None and outcome.error.code not in _BY_THE_TOOL:
        return f"its tool did not end it: {outcome.error.code.value}"
    if call.arguments is None or call.result is None or call.values is None:
        return "its arguments, values or result are not kept"
    if call.values.left_out:
        return f"{call.values.left_out} of its values were too many or too long to be recorded"
    return ""


def _read(reader: Reader, call_id: str) -> ReplayableCall:
    events = reader.events_of_call(call_id)
    begun = next((each for each in events if each.type == ExecuteStart.TYPE), events[0])
    fields = decode(begun.body)
    data: Mapping[str, Any] = fields["data"]
    ends = [each for each in events if each.type in _ENDS]
    recorded = read_call(reader, call_id)
    if recorded is None:
        raise AssertionError("it has events")
    return ReplayableCall(
        call_id=call_id,
        tool=fields["tool"],
        plugin=fields["plugin"],
        plugin_digest=data.get("plugin", ""),
        definition_digest=data.get("definition", ""),
        context=fields["context"],
        arguments=read_payload(reader, begun),
        values=_values(reader, events, recorded.outcome),
        recorded=recorded,
        result=read_payload(reader, ends[-1]) if ends else None,
    )


def _values(reader: Reader, events: list[StoredEvent], outcome: CallOutcome | None) -> TakenValues | None:
    """What the last attempt took: the outcome is its."""
    last = None if outcome is None else outcome.attempts
    told = [
        each
        for each in events
        if each.type == ExecuteValues.TYPE and decode(each.body)["data"].get("attempt", last) == last
    ]
    if not told:
        return TakenValues()
    data = read_payload(reader, told[-1])
    return None if data is None else TakenValues.from_json(data)
