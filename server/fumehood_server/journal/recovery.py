"""Gives each call that a dead sidecar left without an outcome the one that is true."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fumehood_server.journal.encoding import decode, encode
from fumehood_server.journal.entry import CallRow, CallState, Entry
from fumehood_server.journal.store import Reader, Store
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.events import About, Digested, ExecuteEnd, Fault
from fumehood_server.model.outcome_json import outcome_to_json
from fumehood_server.model.taxonomy import Code

_PORTION = 500


def recover(store: Store, reader: Reader, *, sidecar: str) -> int:
    """End every call without an outcome. Before the sidecar that calls it admits any. Returns how many there were.

    Raises:
        StoreError: the journal can't be read or written.
    """
    ended = 0
    while rows := reader.open_calls(limit=_PORTION):
        store.write(_ends(rows, reader, sidecar))
        ended += len(rows)
    return ended


def _ends(rows: Sequence[CallRow], reader: Reader, sidecar: str) -> list[Entry]:
    entries = []
    now = max(time.time_ns() // 1_000, reader.last_time_us())
    for row in rows:
        events = reader.events_of_call(row.call_id)
        error = _error(row)
        outcome = CallOutcome(
            call_id=row.call_id,
            tool=row.tool,
            content=(Block(text=error.message),),
            error=error,
            attempts=1 if row.state is CallState.DISPATCHED else 0,
        )
        payload = outcome_to_json(outcome)
        event = ExecuteEnd(
            error=Fault.of(error),
            outcome_unknown=bool(error.details.get("outcome_unknown")),
            result=Digested.of(payload),
            attempts=outcome.attempts,
        )
        about = About(
            call_id=row.call_id,
            run_id=row.run_id,
            tool=row.tool,
            plugin=events[0].plugin,
            context=decode(events[0].body)["context"],
        )
        entries.append(encode(event, about, time_us=now, sidecar=sidecar, number=len(events) + 1, payloads=(payload,)))
    return entries


def _error(row: CallRow) -> CallError:
    if row.has_effects and row.state is CallState.DISPATCHED:
        return CallError(
            code=Code.TOOL_OUTCOME_UNKNOWN,
            message=(
                f"The sidecar ended while {row.tool[:64]} ran, so nobody knows whether it had its effects. It is "
                "not run again by itself: look, and say what you found by ResolveCall."
            ),
            details={"outcome_unknown": True, "reason": "sidecar_ended"},
        )
    if row.has_effects:
        return CallError(
            code=Code.TOOL_UNAVAILABLE,
            message=f"The sidecar ended before {row.tool[:64]} was started: nothing of it ran. Call again.",
            retryable=True,
            details={"reason": "sidecar_ended"},
        )
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"The sidecar ended before {row.tool[:64]} did. It has no effects: call again.",
        retryable=True,
        details={"reason": "sidecar_ended"},
    )
