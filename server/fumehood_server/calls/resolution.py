"""Settles outcomes that nobody knows, on the word of somebody who has looked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.events import About, Digested, Journal, OutcomeResolved
from fumehood_server.model.outcome_json import outcome_to_json
from fumehood_server.model.recorded import RecordedCall, RecordedCalls, RecordedState
from fumehood_server.model.taxonomy import Code


class ResolvingJournal(Journal, RecordedCalls, Protocol):
    """Where outcomes are recorded and found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What somebody found."""

    executed: bool
    content: tuple[Block, ...]
    details_json: str
    by: str
    reason: str


_resolving: set[str] = set()
"""Calls that are being settled: of two who settle one at a time, the second is told."""


async def resolve(journal: ResolvingJournal, recorded: RecordedCall, resolution: Resolution) -> CallOutcome:
    """Record what was found, and return what the call's id stands for from now on. Runs nothing.

    Raises:
        RefusedError: the call's outcome is known.
        JournalUnavailableError: it can't be recorded.
    """
    call_id = recorded.call_id
    if recorded.state is not RecordedState.UNKNOWN or recorded.outcome is None or call_id in _resolving:
        text = f'the outcome of "{call_id}" is not unknown: {recorded.state}'
        raise RefusedError(Refusal(RefusalReason.OUTCOME_KNOWN, text))
    outcome = _outcome(recorded, recorded.outcome, resolution)
    payload = outcome_to_json(outcome)
    event = OutcomeResolved(
        executed=resolution.executed,
        by=resolution.by,
        reason=resolution.reason,
        result=Digested(hashlib.sha256(payload).hexdigest(), len(payload), kept=True),
    )
    about = About(
        call_id=call_id,
        run_id=recorded.run_id,
        tool=recorded.tool,
        plugin=recorded.plugin,
        context={"session_id": recorded.session_id} if recorded.session_id else {},
        number=recorded.events + 1,
    )
    _resolving.add(call_id)
    try:
        await journal.commit(event, about, (payload,))
    finally:
        _resolving.discard(call_id)
    return outcome


def _outcome(recorded: RecordedCall, unknown: CallOutcome, resolution: Resolution) -> CallOutcome:
    error, content = None, resolution.content
    if not resolution.executed:
        error = CallError(
            code=Code.TOOL_EXECUTION_FAILED,
            message=(
                f"{recorded.tool[:64]} was not executed: {resolution.by} has looked. Another attempt is another call, "
                "with an id of its own."
            ),
            details={"reason": "not_executed", "resolved_by": resolution.by},
        )
        content = (Block(text=error.message),)
    return CallOutcome(
        call_id=recorded.call_id,
        tool=recorded.tool,
        content=content,
        details_json=resolution.details_json,
        error=error,
        attempts=unknown.attempts,
        usage=unknown.usage,
        receipt=unknown.receipt,
    )
