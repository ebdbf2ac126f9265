"""The step that answers a call of a forked run from the record: what was done before the fork is never done again."""

from __future__ import annotations

from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.forks import Forks
from fumehood_server.calls.repeats import Repeats
from fumehood_server.calls.steps.recall import known_hashes, recorded_outcome
from fumehood_server.calls.steps.writable import not_run
from fumehood_server.errors import JournalUnavailableError
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.events import About
from fumehood_server.model.forks import OutcomeServed
from fumehood_server.model.journal import Journal
from fumehood_server.model.recorded import RecordedCall


async def serve_recorded(
    call: Call, forks: Forks, journal: Journal, repeats: Repeats, prepared_hash: str
) -> CallOutcome | None:
    """The recorded outcome of the call that this one stands for, once it is on disk that it was given. None: it runs.

    `prepared_hash`: of the arguments as a worker would get them now. Empty: they don't fit.

    Raises:
        RefusedError: the record has another call there.
        StepFailedError: the journal can't be used, so nobody knows whether it was run before.
    """
    request = call.request
    try:
        plan = await forks.plan(request.context.request_id)
        was_given = plan.was_given(request.call_id)
        taken = plan.take(request, (known_hashes(request.arguments_json) | {prepared_hash}) - {""})
        if taken is None:
            return None
        is_recorded = was_given
        plan.giving += 1
        try:
            async with repeats.turn(request.caller):
                found = await journal.find(taken.call_id)
                await repeats.pause(None if found is None else found.outcome)
            if found is None:
                raise JournalUnavailableError(f'the record of "{taken.call_id}" is gone')
            outcome = recorded_outcome(found, request.arguments_json, prepared_hash)
            if found.outcome is not None and not was_given:
                await journal.commit(_event(call, found), _about(call, found))
                is_recorded = True
        finally:
            plan.giving -= 1
            if not is_recorded:
                plan.put_back(request.call_id, taken)
    except JournalUnavailableError as exc:
        raise StepFailedError(not_run(request.tool, f"its run is forked, and {exc}")) from exc
    return replace(outcome, call_id=request.call_id, recorded_call_id=taken.call_id)


def _event(call: Call, found: RecordedCall) -> OutcomeServed:
    error = None if found.outcome is None else found.outcome.error
    return OutcomeServed(
        call_id=call.request.call_id,
        source_call_id=found.call_id,
        start_position=found.start_position,
        end_position=found.end_position,
        arguments_hash=found.arguments_hash,
        outcome="OK" if error is None else error.code.value,
        result_sha256=found.result_sha256,
        caller=call.request.caller,
    )


def _about(call: Call, found: RecordedCall) -> About:
    context = call.request.context
    return About(
        run_id=context.request_id,
        tool=call.request.tool,
        plugin=found.plugin,
        context=context.given(),
    )
