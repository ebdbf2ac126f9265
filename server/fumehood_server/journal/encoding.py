"""Events as JSON, which is what the tree is over, and back.

    {"type", "time_us", "sidecar", "number", "call_id", "run_id", "tool", "plugin", "context", "data"}

`number` counts the events of one call from 1 and is 0 for others, so that none of a call's can be left out unseen.
`data` holds the fields of the event's class. The text is hashed as it is written here and never written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from fumehood_server.journal.entry import CallChange, CallClaim, CallRow, CallState, Entry, RunClaim, RunStep
from fumehood_server.model.events import (
    About,
    Document,
    Event,
    ExecuteAttempt,
    ExecuteEnd,
    ExecuteStart,
    ExecuteTakenOver,
    OutcomeResolved,
)
from fumehood_server.model.run_events import InferenceEnd, InferenceStart, RunEnded, RunResumed, RunStarted

_NO_EFFECTS = frozenset({"", "none", "read"})


def encode(
    event: Event,
    about: About,
    *,
    time_us: int,
    sidecar: str,
    number: int = 0,
    payloads: tuple[bytes, ...] = (),
    documents: tuple[Document, ...] = (),
) -> Entry:
    """The event as it is written."""
    fields = {
        "type": event.TYPE,
        "time_us": time_us,
        "sidecar": sidecar,
        "number": number,
        "call_id": about.call_id,
        "run_id": about.run_id,
        "tool": about.tool,
        "plugin": about.plugin,
        "context": about.context,
        "data": event,
    }
    try:
        body = orjson.dumps(fields)
    except TypeError:  # halves of surrogate pairs, as in names of files that are no text
        body = orjson.dumps(_with_whole_characters({**fields, "data": asdict(event)}))
    entry = Entry(
        body,
        time_us,
        event.TYPE,
        about.call_id or about.run_id,
        about.tool,
        about.plugin,
        _call_of(event, about, time_us, number),
        payloads,
        documents,
        bool(about.call_id) and number > 0,
    )
    entry.run = _run_of(event, about)
    if about.charges and isinstance(event, ExecuteStart | ExecuteEnd | InferenceStart | InferenceEnd):
        entry.charges, entry.releases = about.charges, isinstance(event, ExecuteEnd)
        entry.asks = isinstance(event, InferenceStart)
    return entry


def decode(body: bytes) -> dict[str, Any]:
    """The event's fields.

    Raises:
        ValueError: it is no event.
    """
    fields = orjson.loads(body)
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str) or "data" not in fields:
        raise ValueError("is no event")
    return fields


def _with_whole_characters(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {_with_whole_characters(key): _with_whole_characters(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_whole_characters(each) for each in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def has_effects(side_effects: str) -> bool:
    """Whether a tool of this level may change something outside of its process."""
    return side_effects not in _NO_EFFECTS


def _run_of(event: Event, about: About) -> RunClaim | None:
    """What the event says of its run."""
    if isinstance(event, RunStarted):
        return RunClaim(about.run_id, RunStep.START)
    if isinstance(event, RunResumed):
        return RunClaim(about.run_id, RunStep.RESUME, event.from_sidecar)
    if isinstance(event, RunEnded):
        return RunClaim(about.run_id, RunStep.END)
    return None


def _call_of(event: Event, about: About, time_us: int, number: int) -> CallRow | CallChange | CallClaim | None:
    """What the event says of its call's state."""
    if isinstance(event, ExecuteStart):
        return CallRow(
            call_id=about.call_id,
            run_id=about.run_id,
            session_id=about.context.get("session_id", ""),
            tool=about.tool,
            arguments_hash=bytes.fromhex(event.asked_hash or event.arguments_hash),
            has_effects=has_effects(event.side_effects),
            started_us=time_us,
        )
    if isinstance(event, ExecuteEnd):
        return CallChange(about.call_id, CallState.UNKNOWN if event.outcome_unknown else CallState.ENDED)
    if isinstance(event, ExecuteAttempt):
        return CallChange(about.call_id, CallState.DISPATCHED)
    if isinstance(event, OutcomeResolved):
        return CallChange(about.call_id, CallState.RESOLVED)
    if isinstance(event, ExecuteTakenOver):
        return CallClaim(about.call_id, event.from_sidecar, number - 1)
    return None
