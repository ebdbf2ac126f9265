"""The step that finds out whether a call repeats one that was recorded: `call_id` is an idempotency key."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
from dataclasses import replace

import orjson

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import Bound
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.repeats import Repeats
from fumehood_server.calls.steps.writable import not_run
from fumehood_server.errors import CallTakenError, JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import Block, CallError, CallOutcome, CallRequest
from fumehood_server.model.caller import recorded_name
from fumehood_server.model.forks import is_fork_id
from fumehood_server.model.journal import Journal
from fumehood_server.model.recorded import RecordedCall, RecordedState
from fumehood_server.model.taxonomy import Code
from fumehood_server.validation.canonical import canonical_sha256

FOLLOW_S = 3_600.0
"""The longest that a call follows another sidecar's, whatever its caller's deadline."""
_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.5
"""Between two looks for how it ended: twice as long each time."""
_MAX_PARSED_CHARS = 16 * 1024
"""Longer arguments are compared as they are prepared, and as text."""


async def recall(call: Call, journal: Journal, repeats: Repeats) -> RecordedCall | None:
    """The call that this one's id stands for. None: there is none, so this one is the first.

    Raises:
        StepFailedError: the journal can't be read, so that the call might run twice.
        RefusedError: that call was of another tool; or of another run, where this one's was forked: what comes after a
            fork is to run, and under an id of its own, so that both calls are recorded.
    """
    request = call.request
    run_id = request.context.request_id
    is_forked = is_fork_id(run_id)
    if not request.is_named or not journal.recording or not (is_forked or journal.may_know(request.call_id)):
        return None
    try:
        async with repeats.turn(request.caller):
            found = await (journal.find if is_forked else journal.recent)(request.call_id)
            await repeats.pause(None if found is None else found.outcome)
    except JournalUnavailableError as exc:
        why = f"whether it ran under this call_id before can't be read: {exc}"
        raise StepFailedError(not_run(request.tool, why)) from exc
    if found is not None and (found.tool != request.tool or (is_forked and found.run_id != run_id)):
        raise other_call(request.call_id)
    if found is not None:
        _check_caller(request, found)
    return found


async def recall_taken(call: Call, journal: Journal, repeats: Repeats, taken: CallTakenError) -> RecordedCall:
    """The call of another sidecar that has this one's id.

    Raises:
        StepFailedError: the journal can't be read.
        RefusedError: that call was of another tool, or of another caller.
    """
    tool = call.request.tool
    try:
        found = await _find(call, journal, repeats)
    except JournalUnavailableError as exc:
        raise StepFailedError(not_run(tool, f"the call that has its call_id can't be read: {exc}")) from exc
    if found is None:
        raise StepFailedError(not_run(tool, str(taken))) from taken
    if found.tool != tool:
        raise other_call(call.request.call_id)
    _check_caller(call.request, found)
    return found


async def follow(call: Call, found: RecordedCall, journal: Journal, repeats: Repeats) -> RecordedCall | None:
    """A call that another sidecar runs, once it has its outcome or its sidecar has died. None: this one's time is over.

    Raises:
        EndedEarlyError: this one was cancelled, or its caller's deadline has passed.
        StepFailedError: the journal can't be read.
    """
    deadline = call.deadline(Bound.WAIT, call.admitted_at, FOLLOW_S)
    pause_s = _LOOK_S
    try:
        while deadline.at > time.monotonic():
            wait_s = min(pause_s, max(deadline.at - time.monotonic(), 0.0))
            await call.wait_for(functools.partial(asyncio.sleep, wait_s), deadline)
            pause_s = min(pause_s * 2, _LONGEST_LOOK_S)
            found = await _find(call, journal, repeats) or found
            if found.outcome is not None or found.state is RecordedState.INTERRUPTED:
                return found
    except JournalUnavailableError as exc:
        raise StepFailedError(not_run(found.tool, f"the call that has its call_id can't be read: {exc}")) from exc
    return None


async def _find(call: Call, journal: Journal, repeats: Repeats) -> RecordedCall | None:
    async with repeats.turn(call.request.caller):
        found = await journal.find(call.request.call_id)
        await repeats.pause(None if found is None else found.outcome)
    return found


def recorded_outcome(found: RecordedCall, arguments_json: str, prepared_hash: str) -> CallOutcome:
    """What the recorded call's caller got, for the same arguments. `prepared_hash`: as a worker would get them now.

    Raises:
        RefusedError: the arguments are others.
    """
    check_same(found, arguments_json, prepared_hash)
    if found.outcome is not None:
        return _without_result(found, found.outcome) if found.removed else found.outcome
    error = running_elsewhere(
        found, f"Another sidecar runs {found.tool[:64]}, or lost sight of it. Ask GetCall for it later."
    )
    return CallOutcome(call_id=found.call_id, tool=found.tool, content=(Block(text=error.message),), error=error)


def running_elsewhere(found: RecordedCall, message: str, cause: CallError | None = None) -> CallError:
    """A call of another sidecar's that has no outcome yet, and does not get it here."""
    return CallError(
        code=Code.TOOL_OUTCOME_UNKNOWN,
        message=message,
        retryable=True,
        details={"reason": "running_elsewhere", "sidecar": found.sidecar},
        caused_by=cause,
    )


def check_same(found: RecordedCall, arguments_json: str, prepared_hash: str) -> None:
    """Let a call through that has the arguments of the recorded one.

    Raises:
        RefusedError: it has others.
    """
    if not found.arguments_hash:
        raise _nothing_kept(found)
    if found.arguments_hash not in {prepared_hash, *known_hashes(arguments_json)}:
        raise other_call(found.call_id)


def _without_result(found: RecordedCall, outcome: CallOutcome) -> CallOutcome:
    """What is known of an outcome whose result was not kept. No success, or it would be taken for the result."""
    details: dict[str, object] = {"reason": "result_not_kept", "code": "OK"}
    if outcome.error is None:
        code, said = Code.TOOL_UNAVAILABLE, f"{found.tool[:64]} was executed under this call_id and succeeded."
    else:
        code, said = outcome.error.code, outcome.error.message
        details = {**outcome.error.details, "reason": "result_not_kept", "code": code.value}
    error = CallError(
        code=code,
        message=f"{said} What it returned is not kept in the journal. It was not run again.",
        details=details,
    )
    return replace(outcome, content=(Block(text=error.message),), error=error)


def check_repeats(request: CallRequest, other: CallRequest) -> None:
    """Let a request through that repeats a call under way.

    Raises:
        RefusedError: it asks for something else under that call's id.
    """
    one, two = request.arguments_json, other.arguments_json
    if request.identity.name != other.identity.name:
        raise _others_call(request.call_id)
    if request.tool != other.tool or (one != two and not known_hashes(one) & known_hashes(two)):
        raise other_call(request.call_id)


def _check_caller(request: CallRequest, found: RecordedCall) -> None:
    """Refuse the outcome of another caller's call. Callers without names are not told apart."""
    if request.identity.name != recorded_name(found.caller):
        raise _others_call(request.call_id)


def _others_call(call_id: str) -> RefusedError:
    text = f'the id "{call_id}" is that of another caller\'s call: choose another id, with something random in it'
    return RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))


def _nothing_kept(found: RecordedCall) -> RefusedError:
    text = (
        f'the id "{found.call_id}" was used before, and the journal keeps nothing of that tool\'s arguments '
        '(payloads = "off") by which to tell whether this is the same call: ask GetCall how it ended'
    )
    return RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text, {"payloads": "off"}))


def other_call(call_id: str) -> RefusedError:
    """The id was given to another call before."""
    text = f'the id "{call_id}" was used for another tool or for other arguments: choose another id'
    return RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))


def asked_hash(text: str) -> str:
    """The hash by which arguments are known that the plugin prepares: as the caller sent them."""
    text = text or "{}"
    known = known_hashes(text)
    return min(known - {hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()}, default="") or known.pop()


def known_hashes(text: str) -> set[str]:
    """Hashes by which arguments are known that never came to be prepared."""
    text = text or "{}"
    known = {hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()}
    if len(text) <= _MAX_PARSED_CHARS:
        with contextlib.suppress(ValueError, RecursionError):
            known.add(canonical_sha256(orjson.loads(text), text))
    return known
