"""Runs one call from its admission to its outcome: every step, in order."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass, replace
from typing import TypeVar

from fumehood_server.calls.attempts import run_attempts
from fumehood_server.calls.call import Call
from fumehood_server.calls.dependencies import CallDependencies
from fumehood_server.calls.earlier_call import find_earlier, find_taken, repeat_earlier
from fumehood_server.calls.errors import NotBegunError, StandingLostError, StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.again import (
    after_taken,
    check_retry,
    check_unchanged,
    checked_error,
    error_of,
)
from fumehood_server.calls.steps.allow import check_caller
from fumehood_server.calls.steps.answer import failed, log_outcome, outcome_of
from fumehood_server.calls.steps.approve import ApprovalParts, approve, check_used
from fumehood_server.calls.steps.ask_to_prepare import ask_plugin_to_prepare
from fumehood_server.calls.steps.check import Checked, check_result
from fumehood_server.calls.steps.find import find_tool
from fumehood_server.calls.steps.intercept import Interception, hooked_call
from fumehood_server.calls.steps.permit import check_permission, decide
from fumehood_server.calls.steps.prepare import prepare_arguments
from fumehood_server.calls.steps.quota import charges_of
from fumehood_server.calls.steps.validate import validate_in_time
from fumehood_server.calls.steps.writable import await_journal
from fumehood_server.errors import CallTakenError, JournalUnavailableError, RefusedError, WorkerUnavailableError
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, Approvals
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.policy import Verdict
from fumehood_server.model.recorded import RecordedCall
from fumehood_server.model.standing import StandingUse
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Permission
from fumehood_server.telemetry.logging import correlation
from fumehood_server.validation.documents import Accepted

_Value = TypeVar("_Value")


async def run_call(call: Call, needs: CallDependencies) -> CallOutcome:
    """The call's one outcome. Where its id turns out to be that of another sidecar's call, that one's.

    Raises:
        RefusedError: its id is another call's, its run is a fork whose record has another call there, or it is a retry
            that its tool doesn't allow. Nothing else.
    """
    taken: CallTakenError | None = None
    progress = Progress()
    while True:
        try:
            return await _run(call, needs, progress, taken)
        except CallTakenError as exc:
            taken, progress = exc, after_taken(progress, str(exc))


async def _run(
    call: Call, needs: CallDependencies, progress: Progress, taken: CallTakenError | None = None
) -> CallOutcome:
    """Take the call through its steps, record and log how it ended, and return its one outcome.

    `taken`: it is known that its id is another sidecar's call's.

    Raises:
        RefusedError: as `run_call`.
        CallTakenError: its id is that of another sidecar's call.
    """
    try:
        found = await (find_earlier(call, needs) if taken is None else find_taken(call, needs, taken))
        if isinstance(found, CallOutcome):
            return found
        if found is not None:
            repeated = await repeat_earlier(call, found, needs, progress)
            if repeated is not None:
                return repeated
        checked = await _take_steps(call, needs, progress, found)
    except (RefusedError, CallTakenError):
        raise
    except NotBegunError as exc:
        outcome = outcome_of(call, progress, failed(error_of(progress, call.request.tool, exc.error)))
        log_outcome(needs.lines, call, progress, outcome)
        if exc.error.code is Code.TOOL_QUOTA_EXCEEDED:
            _observe(call, needs, progress, outcome)
        return outcome
    except (StepFailedError, WorkerUnavailableError) as exc:
        checked = failed(error_of(progress, call.request.tool, exc.error))
    except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave an admitted call without its outcome
        checked = failed(error_of(progress, call.request.tool, _internal_error(call, needs, exc)))
    return await _end(call, needs, progress, checked)


async def _end(call: Call, needs: CallDependencies, progress: Progress, checked: Checked) -> CallOutcome:
    """Record and log how the call ended.

    Raises:
        CallTakenError: as `_run`.
    """
    outcome = outcome_of(call, progress, checked)
    try:
        outcome = await needs.records.end(call, progress, outcome)
        log_outcome(needs.lines, call, progress, outcome)
        _observe(call, needs, progress, outcome)
    except CallTakenError:
        raise
    except Exception as exc:  # noqa: BLE001 - likewise
        _internal_error(call, needs, exc)
    return outcome


def _observe(call: Call, needs: CallDependencies, progress: Progress, outcome: CallOutcome) -> None:
    if needs.observer is not None:
        needs.observer.call_ended(
            call.request,
            outcome,
            plugin=None if progress.tool is None else progress.tool.plugin,
            admitted_at=call.admitted_at,
            worker_id=progress.worker_id,
        )


async def _take_steps(
    call: Call, needs: CallDependencies, progress: Progress, interrupted: RecordedCall | None = None
) -> Checked:
    """The steps, each a function of a file in `steps`. Raises what the call ends with where one of them ends it."""
    request = call.request
    _passed(check_caller(needs.rights, request))
    may_list = functools.partial(needs.rights.may_list, request.identity)
    await needs.tools.look_for_programs()
    tool, spec = _passed(find_tool(needs.tools, request.tool, may_list))
    progress.tool = tool
    if interrupted is None:
        check_retry(call, tool, needs.journal)
    else:
        check_unchanged(tool, spec.plugin_digest, interrupted)
    text = await ask_plugin_to_prepare(call, tool, progress, needs.pools, release_s=needs.release_s)
    prepared = _passed(
        await prepare_arguments(call, tool, needs.checks, hashed=needs.journal.recording or tool.cache_s > 0, text=text)
    )
    progress.arguments_json, progress.arguments_hash = prepared.text, prepared.canonical_sha256
    progress.coercions = prepared.coercions
    validated = functools.partial(validate_in_time, call, tool, needs.checks)
    verdict = await decide(needs.policy, tool, request.identity.name, prepared.text, validated)
    _passed(check_permission(tool, verdict, approvals=needs.approvals is not None))
    _passed(await await_journal(call, tool, needs.journal, required=needs.journal_required))
    if tool.plugin_secrets:
        await needs.records.find_secrets(progress)
    ready = _Ready(tool, spec, prepared, verdict, interrupted is not None)
    turns = needs.hooks.turns(tool, hooked_call(call, tool)) if needs.hooks else ()
    if not turns:
        return await _carry_out(call, needs, progress, ready)
    hooks = Interception(call, tool, turns, progress, needs.interception)
    try:
        prepared, verdict = await hooks.before(prepared, verdict)
        ready = replace(ready, prepared=prepared, verdict=verdict)
        return await hooks.after(spec, await _carry_out(call, needs, progress, ready))
    finally:
        await hooks.close()


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call whose arguments stand, but for an approver."""

    tool: RegisteredTool
    spec: WorkerSpec
    prepared: Accepted
    verdict: Verdict
    resumed: bool


async def _carry_out(call: Call, needs: CallDependencies, progress: Progress, ready: _Ready) -> Checked:
    """The steps from the approval to the tool's answer. Raises as `_take_steps`."""
    tool, spec, resumed = ready.tool, ready.spec, ready.resumed
    approved = await _record_start(call, needs, progress, ready)
    kept = None if resumed or approved is not None else needs.cache.find(call.request, progress)
    if kept is not None:
        return kept
    result = await run_attempts(call, needs, progress, tool, spec)
    checked = checked_error(progress, call.request.tool, await check_result(call, tool, spec, result, needs.checks))
    if approved is None:
        needs.cache.keep(call.request, progress, checked)
    return checked


async def _record_start(
    call: Call, needs: CallDependencies, progress: Progress, ready: _Ready
) -> Approval | StandingUse | None:
    """Have the call's start recorded, with the approval that it uses. None: it needs none, or had begun before."""
    lost = frozenset[str]()
    while True:
        ready = await _by_rules_in_force(call, needs, ready)
        approved = await _obtain_approval(call, ready, needs=needs, progress=progress, but=lost)
        progress.charges = await charges_of(call, ready.tool, progress, needs.quotas)
        if ready.resumed:
            return None
        try:
            await needs.records.start(call, progress, required=needs.journal_required, approved=approved)
        except StandingLostError as exc:  # used up by other calls, revoked or expired: it has to ask
            lost |= {exc.standing_id}
            continue
        if approved is not None and needs.approvals is not None:
            await _note_use(approved, needs.approvals, progress)
        return approved


async def _by_rules_in_force(call: Call, needs: CallDependencies, ready: _Ready) -> _Ready:
    """The same by the rules of now, where others were taken up since: hooks may have taken seconds."""
    validated = functools.partial(validate_in_time, call, ready.tool, needs.checks)
    while ready.verdict.policy != needs.policy.version:
        verdict = await decide(needs.policy, ready.tool, call.request.identity.name, ready.prepared.text, validated)
        _passed(check_permission(ready.tool, verdict, approvals=needs.approvals is not None))
        ready = replace(ready, verdict=verdict)
    return ready


async def _note_use(approved: Approval | StandingUse, approvals: Approvals, progress: Progress) -> None:
    if isinstance(approved, Approval):
        approvals.used(approved)
        return
    progress.standing_id = approved.standing.standing_id
    if approved.waiting is not None:
        with contextlib.suppress(ApprovalRefusedError, JournalUnavailableError):  # closed, or left to its time
            await approvals.withdraw(approved.waiting, f"{progress.standing_id} has let its call begin")


async def _obtain_approval(
    call: Call, ready: _Ready, *, needs: CallDependencies, progress: Progress, but: frozenset[str]
) -> Approval | StandingUse | None:
    """The approval that the call uses, and what of its arguments was changed by it. None: it needs none."""
    tool, prepared, verdict = ready.tool, ready.prepared, ready.verdict
    if verdict.permission is not Permission.REQUIRE_APPROVAL or needs.approvals is None:
        return None
    parts = ApprovalParts(approvals=needs.approvals, policy=needs.policy, tools=needs.tools, checks=needs.checks)
    if ready.resumed:
        progress.standing_id = await check_used(call, tool, prepared, parts)
        return None
    approved = await approve(call, tool, prepared, verdict, progress=progress, parts=parts, but=but)
    _passed(check_caller(needs.rights, call.request))  # its rights may have been taken while it waited
    if isinstance(approved.approval, Approval) and approved.approval.edited:
        progress.asked_hash = progress.asked_hash or progress.arguments_hash
        progress.arguments_json = approved.prepared.text
        progress.arguments_hash = approved.prepared.canonical_sha256
        progress.coercions += approved.prepared.coercions
    return approved.approval


def _passed(value: _Value | CallError) -> _Value:
    """What a step returned, unless it says that the call ends there."""
    if isinstance(value, CallError):
        raise StepFailedError(value)
    return value


def _internal_error(call: Call, needs: CallDependencies, exc: Exception) -> CallError:
    request = call.request
    needs.log.error("a step of a call failed", exc_info=exc, call_id=request.call_id, **correlation(request.context))
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"The sidecar failed while it ran {request.tool[:64]}; its log says more.",
        details={"reason": "internal_error"},
    )
