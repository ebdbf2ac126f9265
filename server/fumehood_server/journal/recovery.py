"""Gives each call that a dead sidecar left without an outcome the one that is true."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fumehood_server.journal.encoding import decode, encode
from fumehood_server.journal.entry import CallRow, CallState, Entry
from fumehood_server.journal.interrupted import InterruptedCalls
from fumehood_server.journal.store import Reader, Store, StoredEvent
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.events import About, Digested, ExecuteAttempt, ExecuteEnd, ExecuteRetry, Fault
from fumehood_server.model.outcome_json import outcome_to_json
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.model.taxonomy import Code

_PORTION = 500
QUEUED_US = 60_000_000
"""More than an event waits for the writer."""


def recover(
    store: Store, open_reader: Callable[[], Reader], *, sidecar: str, interrupted: InterruptedCalls | None = None
) -> int:
    """End every call without an outcome of a sidecar that is dead, but what `interrupted` keeps.

    `sidecar` is the name of the one that does so. Returns how many it ended.

    Raises:
        StoreError: the journal can't be read or written.
    """
    ended, kept = 0, set[str]()
    for owner in store.owners():
        if owner == sidecar:
            continue
        with store.taking_over(owner) as is_dead:
            if is_dead:
                with contextlib.closing(open_reader()) as reader:
                    settled, left = _end_calls_of(owner, store, reader, sidecar, interrupted)
                ended += settled
                kept |= left
    if interrupted is not None:
        interrupted.keep_only(kept)
    return ended


def _end_calls_of(
    owner: str, store: Store, reader: Reader, sidecar: str, interrupted: InterruptedCalls | None
) -> tuple[int, set[str]]:
    """How many were ended, and the ids of those that are left open."""
    ended, kept = 0, set[str]()
    STEADY_CLOCK.hold_up(reader.least_time_us())
    # Those that are kept are found again: about as many as were under way at a time.
    while rows := [row for row in reader.open_calls(owner, limit=_PORTION + len(kept)) if row.call_id not in kept]:
        over = []
        for row in rows:
            if _is_kept(row, reader, interrupted):
                kept.add(row.call_id)
            else:
                over.append(row)
        if over:
            store.write(_ends(over, reader, sidecar, STEADY_CLOCK.now_us()))
        ended += len(over)
    return ended, kept


def end_late(store: Store, reader: Reader, *, sidecar: str, interrupted: InterruptedCalls) -> None:
    """End interrupted calls that nobody has sent again in time.

    Raises:
        StoreError: the journal can't be read or written. The next sidecar ends those that were to be ended.
    """
    late = interrupted.take_late(STEADY_CLOCK.now_us())
    rows = [row for row in reader.calls(late).values() if row.end_position is None] if late else []
    if rows:
        # Before what waits to be written: events are found by their times, which never fall.
        store.write(_ends(rows, reader, sidecar, STEADY_CLOCK.now_us() - QUEUED_US))


def _is_kept(row: CallRow, reader: Reader, interrupted: InterruptedCalls | None) -> bool:
    if interrupted is None:
        return False
    start = lambda: decode(reader.events_of_call(row.call_id)[0].body)  # noqa: E731 - read for those that are new
    return interrupted.keeps(row, start, STEADY_CLOCK.now_us())


def _ends(rows: Sequence[CallRow], reader: Reader, sidecar: str, now_us: int) -> list[Entry]:
    entries = []
    now = max(now_us, reader.least_time_us())
    for row in rows:
        events = reader.events_of_call(row.call_id)
        attempts = sum(each.type == ExecuteAttempt.TYPE for each in events)
        error = _error(row, events)
        outcome = CallOutcome(
            call_id=row.call_id,
            tool=row.tool,
            content=(Block(text=error.message),),
            error=error,
            attempts=attempts,
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
        entry = encode(event, about, time_us=now, sidecar=sidecar, number=len(events) + 1, payloads=(payload,))
        entry.releases = True
        entries.append(entry)
    return entries


def _between_attempts(row: CallRow, fault: Mapping[str, Any]) -> CallError:
    """How every attempt ended is known, and nothing ran when the sidecar died."""
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=(
            f"The sidecar ended while {row.tool[:64]} waited for another attempt, so that none was under way. Call "
            f"again. The last one failed: {fault['message'] or fault['code']}"
        ),
        retryable=True,
        details={"reason": "sidecar_ended"},
        caused_by=CallError(code=Code(fault["code"]), message=fault["message"], retryable=fault["retryable"]),
    )


def _error(row: CallRow, events: Sequence[StoredEvent]) -> CallError:
    tried = [each for each in events if each.type in {ExecuteAttempt.TYPE, ExecuteRetry.TYPE}]
    if tried and tried[-1].type == ExecuteRetry.TYPE:
        said = decode(tried[-1].body)["data"]
        if not said["outcome_unknown"]:
            return _between_attempts(row, said["error"])
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
