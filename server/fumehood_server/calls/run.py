"""Runs one call from its admission to its outcome: every step, in order."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from structlog.typing import FilteringBoundLogger

from fumehood_server.calls.call import Call
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.errors import EndedEarlyError, NotBegunError, StepFailedError
from fumehood_server.calls.forks import Forks
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.records import CallRecords
from fumehood_server.calls.repeats import Repeats
from fumehood_server.calls.result_cache import ResultCache
from fumehood_server.calls.steps.acquire import acquire_worker
from fumehood_server.calls.steps.again import (
    after_taken,
    check_here,
    check_retry,
    check_unchanged,
    checked_error,
    error_of,
    go_on,
)
from fumehood_server.calls.steps.allow import check_caller
from fumehood_server.calls.steps.answer import failed, log_outcome, outcome_of
from fumehood_server.calls.steps.approve import ApprovalParts, approve, check_used
from fumehood_server.calls.steps.ask_to_prepare import ask_plugin_to_prepare
from fumehood_server.calls.steps.check import Checked, check_result
from fumehood_server.calls.steps.find import Tools, find_tool
from fumehood_server.calls.steps.intercept import Interception, InterceptionParts, hooked_call
from fumehood_server.calls.steps.invoke import invoke_tool
from fumehood_server.calls.steps.permit import check_permission
from fumehood_server.calls.steps.prepare import prepare_arguments
from fumehood_server.calls.steps.quota import charges_of
from fumehood_server.calls.steps.recall import check_same, follow, recall, recall_taken, recorded_outcome
from fumehood_server.calls.steps.retry import attempts_allowed, delay_s, is_transient, wait_before_retry
from fumehood_server.calls.steps.serve import serve_recorded
from fumehood_server.calls.steps.writable import await_journal
from fumehood_server.calls.turns import Turns
from fumehood_server.errors import CallTakenError, RefusedError, WorkerUnavailableError
from fumehood_server.model.approvals import Approval, Approvals
from fumehood_server.model.call import CallError, CallOutcome, CallRetry
from fumehood_server.model.caller import CallerRights
from fumehood_server.model.events import Journal
from fumehood_server.model.forks import is_fork_id
from fumehood_server.model.hooks import Hooks
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.policy import Policy, Verdict
from fumehood_server.model.quotas import Quotas
from fumehood_server.model.recorded import RecordedCall, RecordedState
from fumehood_server.model.retries import RetryConfig
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Permission
from fumehood_server.model.worker import InvocationResult, WorkerPools
from fumehood_server.telemetry import CallObserver
from fumehood_server.telemetry.logging import CallLines, correlation
from fumehood_server.validation.documents import Accepted

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDependencies:
    """What the steps of every call share."""

    tools: Tools
    policy: Policy
    quotas: Quotas
    approvals: Approvals | None
    """None: none can be kept."""
    pools: WorkerPools
    checks: DocumentChecks
    turns: Turns
    repeats: Repeats
    log: FilteringBoundLogger
    lines: CallLines
    records: CallRecords
    rights: CallerRights
    journal: Journal
    journal_required: bool
    """Whether calls without effects are refused as well while it can't be written."""
    forks: Forks
    retries: Callable[[], RetryConfig]
    """What the operator has of attempts, as it is now."""
    cache: ResultCache
    hooks: Hooks
    interception: InterceptionParts
    observer: CallObserver | None
    """None: nobody asked for telemetry."""
    linger_s: float
    """See `invoke_tool`."""


async def run_call(call: Call, needs: CallDependencies) -> CallOutcome:
    """The call's one outcome. Where its id turns out to be that of another sidecar's call, that one's.

    Raises:
        RefusedError: its id is another call's, or its run is a fork whose record has another call there. Nothing else.
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
        found = await (_first_found(call, needs) if taken is None else _found_taken(call, needs, taken))
        if isinstance(found, CallOutcome):
            return found
        if found is not None:
            repeated = await _repeat(call, found, needs, progress)
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


async def _first_found(call: Call, needs: CallDependencies) -> RecordedCall | CallOutcome | None:
    """The call that this one repeats, or what a fork's record has in its place. None: it is new, as far as is known."""
    is_allowed = needs.rights.may_call(call.request.identity, call.request.tool)
    if is_allowed and is_fork_id(call.request.context.request_id):
        prepared_hash = await _prepared_hash(call, needs)
        served = await serve_recorded(call, needs.forks, needs.journal, needs.repeats, prepared_hash)
        if served is not None:
            return served
    return await recall(call, needs.journal, needs.repeats)


async def _found_taken(call: Call, needs: CallDependencies, taken: CallTakenError) -> RecordedCall:
    """Another sidecar's call, whose id this one has."""
    with _another_call():
        return await recall_taken(call, needs.journal, needs.repeats, taken)


def _observe(call: Call, needs: CallDependencies, progress: Progress, outcome: CallOutcome) -> None:
    if needs.observer is not None:
        needs.observer.call_ended(
            call.request,
            outcome,
            plugin=None if progress.tool is None else progress.tool.plugin,
            admitted_at=call.admitted_at,
            worker_id=progress.worker_id,
        )


async def _repeat(call: Call, found: RecordedCall, needs: CallDependencies, progress: Progress) -> CallOutcome | None:
    """The outcome of the call that this one repeats: what it has, or what another sidecar gives it meanwhile.

    Nothing runs, and nothing is recorded anew. None: its sidecar died, and this one goes on in its place.
    """
    request, journal = call.request, needs.journal
    with _another_call():
        prepared_hash = await _prepared_hash(call, needs)
    while found.outcome is None:
        check_same(found, request.arguments_json, prepared_hash)
        if found.state is RecordedState.INTERRUPTED:
            if journal.shared:
                check_here(found, find_tool(needs.tools, request.tool, lambda _: False))
            if await go_on(call, found, progress, journal):
                return None
        if not journal.shared:
            break
        with _another_call():
            later = await follow(call, found, journal, needs.repeats)
        if later is None:
            break
        found = later
    return recorded_outcome(found, request.arguments_json, prepared_hash)


@contextlib.contextmanager
def _another_call() -> Iterator[None]:
    """What goes wrong in the block is told to who asks, and is not the outcome of the call that has the id."""
    try:
        yield
    except StepFailedError as exc:
        raise NotBegunError(exc.error) from exc


async def _prepared_hash(call: Call, needs: CallDependencies) -> str:
    """Of the arguments as a worker would get them now. Empty: none would."""
    tool = needs.tools.find(call.request.tool)
    if tool is None:
        return ""
    prepared = await prepare_arguments(call, tool, needs.checks, hashed=True)
    return "" if isinstance(prepared, CallError) else prepared.canonical_sha256


async def _take_steps(
    call: Call, needs: CallDependencies, progress: Progress, interrupted: RecordedCall | None = None
) -> Checked:
    """The steps, each a function of a file in `steps`. Raises what the call ends with where one of them ends it."""
    request = call.request
    _passed(check_caller(needs.rights, request))
    may_list = functools.partial(needs.rights.may_list, request.identity)
    tool, spec = _passed(find_tool(needs.tools, request.tool, may_list))
    progress.tool = tool
    if interrupted is None:
        check_retry(call, tool, needs.journal)
    else:
        check_unchanged(tool, spec.plugin_digest, interrupted)
    text = await ask_plugin_to_prepare(call, tool, progress, needs.pools, linger_s=needs.linger_s)
    prepared = _passed(
        await prepare_arguments(call, tool, needs.checks, hashed=needs.journal.recording or tool.cache_s > 0, text=text)
    )
    progress.arguments_json, progress.arguments_hash = prepared.text, prepared.canonical_sha256
    progress.coercions = prepared.coercions
    verdict = needs.policy.decide(tool, request.identity.name, prepared.text)
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
    approved = await _approved(
        call, tool, ready.prepared, ready.verdict, needs=needs, progress=progress, resumed=resumed
    )
    progress.charges = await charges_of(call, tool, progress, needs.quotas)
    if not resumed:
        await needs.records.start(call, progress, required=needs.journal_required, approved=approved)
        if approved is not None and needs.approvals is not None:
            needs.approvals.used(approved)
    kept = None if resumed or approved is not None else needs.cache.find(call.request, progress)
    if kept is not None:
        return kept
    result = await _attempts(call, needs, progress, tool, spec)
    checked = checked_error(progress, call.request.tool, await check_result(call, tool, spec, result, needs.checks))
    if approved is None:
        needs.cache.keep(call.request, progress, checked)
    return checked


async def _attempts(
    call: Call, needs: CallDependencies, progress: Progress, tool: RegisteredTool, spec: WorkerSpec
) -> InvocationResult:
    """The result of the last attempt: of the first that succeeds, or can't be followed by another one.

    Raises:
        StepFailedError: the call ended before an attempt, or between two.
        WorkerUnavailableError: there was no worker for the last one.
    """
    allowed = attempts_allowed(call, tool, needs.retries())
    failures = 0
    error: CallError | None = None
    since = call.ready_at
    while True:
        unavailable: WorkerUnavailableError | None = None
        try:
            result = await _attempt(call, needs, progress, tool, spec, since=since, retried=allowed > 1)
            error = result.error
        except WorkerUnavailableError as exc:
            unavailable, error = exc, exc.error
        except EndedEarlyError as early:
            raise (early if error is None else StepFailedError(replace(early.error, caused_by=error))) from None
        failures += 1
        wait_s = None
        if error is not None and progress.earlier_attempts + failures < allowed and is_transient(error):
            wait_s = delay_s(call, tool, error, failures)
        if error is None or wait_s is None:
            if unavailable is not None:
                raise unavailable
            return result
        if error.code is Code.TOOL_OUTCOME_UNKNOWN or error.details.get("outcome_unknown"):
            progress.in_doubt = error
        await needs.records.retry(call, progress, error, wait_s)
        progress.result = None
        try:
            await wait_before_retry(call, tool, CallRetry(attempt=progress.attempts, error=error, delay_s=wait_s))
        except EndedEarlyError as early:
            raise StepFailedError(replace(early.error, caused_by=error)) from None
        since = time.monotonic()


async def _attempt(
    call: Call,
    needs: CallDependencies,
    progress: Progress,
    tool: RegisteredTool,
    spec: WorkerSpec,
    *,
    since: float,
    retried: bool,
) -> InvocationResult:
    """One attempt, on a worker that is the call's for so long."""
    again = progress.sent > 0
    with await acquire_worker(call, tool, spec, needs.pools, needs.turns, since=since, again=again) as worker:
        await needs.records.attempt(call, progress, worker.worker_id, worker.receipt, retried=retried)
        result = progress.result = await invoke_tool(
            call,
            tool,
            worker,
            progress,
            linger_s=needs.linger_s,
            max_recorded_bytes=needs.records.max_value_bytes(tool),
        )
    progress.spent.add(result)
    return result


async def _approved(
    call: Call,
    tool: RegisteredTool,
    prepared: Accepted,
    verdict: Verdict,
    *,
    needs: CallDependencies,
    progress: Progress,
    resumed: bool,
) -> Approval | None:
    """The approval that the call uses up, and what of its arguments was changed by it. None: it needs none."""
    if verdict.permission is not Permission.REQUIRE_APPROVAL or needs.approvals is None:
        return None
    parts = ApprovalParts(approvals=needs.approvals, policy=needs.policy, tools=needs.tools, checks=needs.checks)
    if resumed:
        await check_used(call, tool, prepared, parts)
        return None
    approved = await approve(call, tool, prepared, verdict, progress=progress, parts=parts)
    _passed(check_caller(needs.rights, call.request))  # its rights may have been taken while it waited
    if approved.approval.edited:
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
