"""The steps of a call that may run again where the sidecar dies: may it, and going on with one that a dead one left."""

from __future__ import annotations

import time
from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.errors import NotBegunError, StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.answer import failed
from fumehood_server.calls.steps.check import Checked
from fumehood_server.calls.steps.recall import running_elsewhere
from fumehood_server.calls.steps.writable import not_run
from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallError
from fumehood_server.model.events import About
from fumehood_server.model.journal import Journal
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.recorded import RecordedCall
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads, safe_to_repeat


def check_retry(call: Call, tool: RegisteredTool, journal: Journal) -> None:
    """Let a call through that asks to run again after a crash, where that can be done.

    Raises:
        RefusedError: it can't be.
    """
    if not call.request.again_after_crash:
        return
    definition = tool.definition
    if not safe_to_repeat(definition.side_effects, idempotent=definition.idempotent):
        raise _refused(f"{tool.name} is not idempotent, so that it can't run twice", "not_idempotent")
    if not journal.keeps_interrupted or tool.payloads is Payloads.OFF:
        raise _refused(f"what {tool.name} is called with is not recorded here", "not_recorded")


async def go_on(call: Call, found: RecordedCall, progress: Progress, journal: Journal) -> bool:
    """Make this call the one that was interrupted, within the deadline that it had. False: it is not to be had now.

    Raises:
        StepFailedError: nobody can say whether it is.
    """
    about = About(
        call_id=found.call_id,
        run_id=found.run_id,
        tool=found.tool,
        plugin=found.plugin,
        context=found.context,
        number=found.events,
    )
    try:
        if not await journal.take_over(found, about):
            return False
    except JournalUnavailableError as exc:  # it may be this sidecar's now, so this is recorded as its outcome
        progress.earlier_attempts, call.about = found.attempts, about
        why = f"whether it may go on can't be recorded: {exc}"
        raise StepFailedError(not_run(found.tool, why)) from exc
    progress.earlier_attempts, call.about = found.attempts, about
    now = call.ready_at = time.monotonic()
    left_s = max((found.until_us - STEADY_CLOCK.now_us()) / 1e6, 0.0) + now - call.admitted_at
    timeout_s = call.request.timeout_s
    call.request = replace(call.request, timeout_s=left_s if timeout_s is None else min(timeout_s, left_s))
    return True


def check_here(found: RecordedCall, tool: tuple[RegisteredTool, WorkerSpec] | CallError) -> None:
    """Leave an interrupted call to other sidecars where this one has not the tool with which it began.

    Raises:
        NotBegunError: it hasn't.
    """
    problem = tool if isinstance(tool, CallError) else _changed(tool[0], tool[1].plugin_digest, found)
    if problem is not None:
        text = (
            f"The sidecar that ran {found.tool[:64]} died, and this one can't go on with it: {problem.message} Call "
            "one that has the tool as it was, with the same call_id."
        )
        raise NotBegunError(running_elsewhere(found, text, problem))


def check_unchanged(tool: RegisteredTool, plugin_digest: str, found: RecordedCall) -> None:
    """Let a second attempt through that runs the code of the first: that is what was said to be idempotent.

    Raises:
        StepFailedError: it would not.
    """
    problem = _changed(tool, plugin_digest, found)
    if problem is not None:
        raise StepFailedError(problem)


def _changed(tool: RegisteredTool, plugin_digest: str, found: RecordedCall) -> CallError | None:
    definition = tool.definition
    if not safe_to_repeat(definition.side_effects, idempotent=definition.idempotent):
        problem = "is no longer idempotent"
    elif found.code != (plugin_digest, tool.definition_digest):
        problem = "has changed since it ran"
    else:
        return None
    return CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{tool.name} {problem}, so that it is not run again.",
        details={"reason": "sidecar_ended"},
    )


def after_taken(progress: Progress, why: str) -> Progress:
    """Of a call that is another sidecar's. What was sent here before that was known leaves a doubt.

    Such a sidecar was cut off from the journal meanwhile, so that it was taken for dead.
    """
    if not progress.sent:
        return Progress()
    doubt = progress.in_doubt or CallError(code=Code.TOOL_OUTCOME_UNKNOWN, message=why)
    return Progress(earlier_attempts=progress.attempts, in_doubt=doubt)


def error_of(progress: Progress, tool: str, error: CallError) -> CallError:
    """What the call ends with that a step ended by `error`. If only an earlier attempt was sent, nobody knows."""
    if progress.in_doubt is not None or not progress.earlier_attempts or progress.sent:  # it was sent now, or never
        return _in_doubt(progress, tool, error)
    return CallError(
        code=Code.TOOL_OUTCOME_UNKNOWN,
        message=(
            f"The sidecar ended while {tool[:64]} ran, so nobody knows whether it had its effects, and it did not come "
            f"to run again: {error.message}"
        ),
        details={"outcome_unknown": True, "reason": "sidecar_ended"},
        caused_by=error,
    )


def checked_error(progress: Progress, tool: str, checked: Checked) -> Checked:
    """What the caller sees of a call whose last attempt failed: the doubt that an earlier one left stays."""
    if checked.error is None:
        return checked
    error = _in_doubt(progress, tool, checked.error)
    return checked if error is checked.error else failed(error)


def _in_doubt(progress: Progress, tool: str, error: CallError) -> CallError:
    if progress.in_doubt is None or error.details.get("outcome_unknown"):
        return error
    return CallError(
        code=Code.TOOL_OUTCOME_UNKNOWN,
        message=(
            f"Nobody knows whether an earlier attempt of {tool[:64]} took effect ({progress.in_doubt.message}), and "
            f"the last one failed: {error.message}"
        ),
        details={"outcome_unknown": True, "reason": "earlier_attempt"},
        caused_by=error,
    )


def _refused(problem: str, why: str) -> RefusedError:
    text = f"{problem}: call it without retry.after_crash"
    return RefusedError(Refusal(RefusalReason.RETRY_REFUSED, text, {"why": why}))
