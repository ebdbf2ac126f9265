"""Settles outcomes that nobody knows, on the word of somebody who has looked."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.errors import CallTakenError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.events import About, OutcomeResolved, payload_of
from fumehood_server.model.journal import Journal
from fumehood_server.model.outcome_json import outcome_to_json
from fumehood_server.model.recorded import RecordedCall, RecordedState
from fumehood_server.model.taxonomy import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What somebody found."""

    executed: bool
    content: tuple[Block, ...]
    details_json: str
    by: str
    reason: str


class Resolver:
    """Settles calls, each once: of two who settle one at a time, the second is told."""

    def __init__(self, journal: Journal) -> None:
        """For one event loop."""
        self._journal = journal
        self._under_way: set[str] = set()

    async def resolve(self, call_id: str, resolution: Resolution) -> CallOutcome | None:
        """Record what was found, and return what the call's id stands for from now on. Runs nothing.

        None: no call of this id is recorded.

        Raises:
            RefusedError: the call's outcome is known, or somebody settles it just now.
            JournalUnavailableError: the journal can't be read or written.
        """
        if call_id in self._under_way:
            raise _known(call_id, "it is being settled")
        self._under_way.add(call_id)
        try:
            recorded = await self._journal.find(call_id)
            return None if recorded is None else await _settle(self._journal, recorded, resolution)
        finally:
            self._under_way.discard(call_id)


async def _settle(journal: Journal, recorded: RecordedCall, resolution: Resolution) -> CallOutcome:
    if recorded.state is not RecordedState.UNKNOWN or recorded.outcome is None:
        raise _known(recorded.call_id, recorded.state)
    outcome = _outcome(recorded, recorded.outcome, resolution)
    payload = outcome_to_json(outcome)
    result, kept = payload_of(payload, recorded.payloads)
    event = OutcomeResolved(
        executed=resolution.executed,
        by=resolution.by,
        reason=resolution.reason,
        result=result,
    )
    about = About(
        call_id=recorded.call_id,
        run_id=recorded.run_id,
        tool=recorded.tool,
        plugin=recorded.plugin,
        context=recorded.context,
        number=recorded.events,
    )
    try:
        await journal.commit(event, about, kept)
    except CallTakenError as exc:
        raise _known(recorded.call_id, "somebody else has settled it") from exc
    return outcome


def _known(call_id: str, state: str) -> RefusedError:
    text = f'the outcome of "{call_id}" is not unknown: {state}'
    return RefusedError(Refusal(RefusalReason.OUTCOME_KNOWN, text))


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
        plugin=recorded.plugin,
        content=content,
        details_json=resolution.details_json,
        error=error,
        attempts=unknown.attempts,
        usage=unknown.usage,
        receipt=unknown.receipt,
    )
