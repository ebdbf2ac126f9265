"""The calls of a run as the journal has them: what each was given, what it took from outside, and what it returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fumehood_server.journal.encoding import decode
from fumehood_server.journal.recorded import read_call
from fumehood_server.journal.store import Reader, StoredEvent
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.events import ExecuteCancelled, ExecuteEnd, ExecuteStart, ExecuteValues
from fumehood_server.model.taken_values import TakenValues
from fumehood_server.model.taxonomy import Code

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
    outcome: CallOutcome | None
    """What its caller got. None: it has none yet."""
    result: bytes | None
    """The same as it was recorded. None: it is not kept."""


def read_run(reader: Reader, subject: str) -> list[ReplayableCall]:
    """The calls of a run (a request_id or a session_id), in the order in which they began; or one call by its id.

    Raises:
        StoreError: the journal can't be read.
    """
    if reader.events_of_call(subject):
        return [_read(reader, subject)]
    return [_read(reader, call_id) for call_id in reader.calls_of_run(subject)]


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
    return ReplayableCall(
        call_id=call_id,
        tool=fields["tool"],
        plugin=fields["plugin"],
        plugin_digest=data.get("plugin", ""),
        definition_digest=data.get("definition", ""),
        context=fields["context"],
        arguments=_payload(reader, begun),
        values=_values(reader, events),
        outcome=None if recorded is None else recorded.outcome,
        result=_payload(reader, ends[-1]) if ends else None,
    )


def _values(reader: Reader, events: list[StoredEvent]) -> TakenValues | None:
    told = [each for each in events if each.type == ExecuteValues.TYPE]
    if not told:
        return TakenValues()
    data = _payload(reader, told[-1])
    return None if data is None else TakenValues.from_json(data)


def _payload(reader: Reader, event: StoredEvent) -> bytes | None:
    return reader.payloads(event.position, event.position + 1).get((event.position, 0))
