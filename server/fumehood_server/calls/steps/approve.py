"""The step of a call that has exactly what will run approved. Nothing changes the arguments after it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import Bound
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.errors import EndedEarlyError, NotBegunError, StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.approval_errors import approval_required, changed, not_approved
from fumehood_server.calls.steps.find import Tools
from fumehood_server.calls.steps.permit import arguments_for, check_permission, decide
from fumehood_server.calls.steps.prepare import arguments_of, settled
from fumehood_server.calls.steps.validate import validate, validate_in_time
from fumehood_server.calls.steps.writable import not_run
from fumehood_server.errors import CallTakenError, JournalUnavailableError
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, Approvals, ApprovalState, Asked, Subject
from fumehood_server.model.bindings import change_of_tool
from fumehood_server.model.call import CallApproval, CallError, CallRequest
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.policy import Policy, Verdict
from fumehood_server.model.standing import StandingUse, ValuesOf
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.model.tool import Permission
from fumehood_server.model.worker import CancelReason
from fumehood_server.validation.documents import Accepted

_SLACK_S = 60.0
"""That a call waits beyond the time of its approval, so that it is told how that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalParts:
    """What the step needs of the sidecar."""

    approvals: Approvals
    policy: Policy
    tools: Tools
    checks: DocumentChecks


@dataclass(frozen=True, slots=True)
class Approved:
    """What was approved: the arguments that run, and the approval to use, of this call or a standing one."""

    prepared: Accepted
    approval: Approval | StandingUse


async def approve(
    call: Call,
    tool: RegisteredTool,
    prepared: Accepted,
    verdict: Verdict,
    *,
    progress: Progress,
    parts: ApprovalParts,
    but: frozenset[str] = frozenset(),
) -> Approved:
    """Wait until somebody has approved the call, or calls like it, or as long as its caller does.

    `but`: standing approvals that it could not use.

    Raises:
        NotBegunError: it is not decided yet, and its caller may come again.
        StepFailedError: it was denied, withdrawn or not decided in time; or what would run has changed meanwhile.
        EndedEarlyError: the call was cancelled or met a deadline.
        CallTakenError: another sidecar has the call, and has used its approval up.
    """
    try:
        while True:
            subject = subject_of(call.request, tool, prepared.canonical_sha256, parts.policy.version)
            asked = await _asked(call, tool, prepared, verdict, subject=subject, progress=progress)
            grants = parts.approvals.grants
            standing = await _standing(call, tool, asked, prepared.text, parts=parts, but=but)
            if standing is not None:
                return Approved(prepared, standing)
            approval = await parts.approvals.obtain(asked)
            approval = await _decision(call, tool, approval, parts.approvals, grants)
            if approval.state is ApprovalState.PENDING:  # a standing one may be for this call, or this one is void
                verdict = await _asked_again(call, tool, prepared.text, approval, parts)
                continue
            await _check_given(tool, approval, asked, parts.approvals)
            call.ready_at = time.monotonic()
            running = await _edited(call, tool, approval, parts) if approval.edited else prepared
            permission = None
            if parts.policy.version != subject.policy:
                permission = (await _permitted(call, tool, running.text, parts)).permission
            _check_unchanged(subject, tool, parts.tools)  # and the rules: no wait between this and the return
            if parts.policy.version == subject.policy or permission is Permission.ALLOW:
                return Approved(running, approval)  # of other rules that allow it, by those of before all the same
            verdict = await _permitted(call, tool, prepared.text, parts)
            if verdict.permission is Permission.ALLOW:  # of what an approver put in its place, nobody can be asked anew
                raise StepFailedError(not_approved(tool.name, approval.approval_id, "changed"))
    except ApprovalRefusedError as exc:
        raise StepFailedError(not_approved(tool.name, "", exc.reason)) from exc
    except CallTakenError:
        raise
    except JournalUnavailableError as exc:
        raise StepFailedError(not_run(tool.name, f"its approval can't be recorded: {exc}")) from exc


async def check_used(call: Call, tool: RegisteredTool, prepared: Accepted, parts: ApprovalParts) -> str:
    """Let a call go on after a crash that had used its approval before. Returns the standing one's id, or nothing.

    Raises:
        StepFailedError: it had none, or one for other arguments.
    """
    try:
        standing = await parts.approvals.standing.of_call(call.request.call_id)
        found = await parts.approvals.of_call(call.request.call_id)
    except JournalUnavailableError as exc:
        raise StepFailedError(not_run(tool.name, f"its approval can't be read: {exc}")) from exc
    subject = subject_of(call.request, tool, prepared.canonical_sha256, parts.policy.version)
    if standing is not None and standing.digest == subject.digest:
        return standing.standing_id
    if found is None or found.state is not ApprovalState.USED or found.subject != subject:
        raise StepFailedError(not_approved(tool.name, "" if found is None else found.approval_id, "changed"))
    return ""


def subject_of(request: CallRequest, tool: RegisteredTool, arguments_sha256: str, policy: str) -> Subject:
    """What an approval of the call is bound to."""
    return Subject(
        tool=tool.name,
        arguments_sha256=arguments_sha256,
        definition=tool.definition_digest,
        plugin="" if tool.spec is None else tool.spec.plugin_digest,
        caller=request.identity.name,
        caller_authenticated_by=request.identity.authenticated_by.value,
        policy=policy,
        permission=str(tool.permission),
        sandbox="" if tool.spec is None else tool.spec.reach,
    )


async def _asked(
    call: Call, tool: RegisteredTool, prepared: Accepted, verdict: Verdict, *, subject: Subject, progress: Progress
) -> Asked:
    request, text = call.request, prepared.text
    if progress.redactor is not None:
        text = await progress.redactor.text_beside(text)
    return Asked(
        call_id=request.call_id,
        run_id=request.context.request_id,
        context=request.context.given(),
        plugin=tool.plugin,
        side_effects=tool.definition.side_effects.value,
        subject=subject,
        arguments_json=text,
        payloads=tool.payloads,
        requirements=verdict.requirements,
        connection=request.identity.connection,
    )


async def _decision(
    call: Call, tool: RegisteredTool, approval: Approval, approvals: Approvals, grants: int
) -> Approval:
    """See `Approvals.decided`."""
    request = call.request
    if approval.state is not ApprovalState.PENDING:
        return approval
    if request.return_if_approval_required:
        raise NotBegunError(approval_required(tool.name, approval))
    wait_s = max((approval.expires_us - STEADY_CLOCK.now_us()) / 1e6, 0.0) + _SLACK_S
    deadline = call.deadline(Bound.WAIT, time.monotonic(), wait_s)
    start: Callable[[], Awaitable[Approval]] = lambda: approvals.decided(approval, grants)  # noqa: E731 - typed
    call.awaits_approval = True
    call.updates.put(CallApproval(approval_id=approval.approval_id, tool=tool.name))
    try:
        return await call.wait_for(start, deadline)
    except EndedEarlyError as exc:
        is_late = exc.reason in {CancelReason.DEADLINE, CancelReason.SHUTDOWN}
        if request.is_named and (is_late or call.is_abandoned):
            raise NotBegunError(exc.error) from exc
        await _withdraw(approval, approvals)
        raise
    finally:
        call.awaits_approval = False


async def _withdraw(approval: Approval, approvals: Approvals) -> None:
    with contextlib.suppress(ApprovalRefusedError, JournalUnavailableError):  # closed, or left to its time
        await approvals.withdraw(approval, "its call was ended, and can't come again")


async def _standing(
    call: Call, tool: RegisteredTool, asked: Asked, text: str, *, parts: ApprovalParts, but: frozenset[str]
) -> StandingUse | None:
    """A standing approval that is for the call, where all rules that ask let one stand. None: it has to ask."""
    if not asked.requirements or not all(each.standing for each in asked.requirements):
        return None
    validated = functools.partial(validate_in_time, call, tool, parts.checks)
    values: ValuesOf = lambda pointers: arguments_for(pointers, text, validated)  # noqa: E731 - typed
    found = await parts.approvals.standing.find(asked, text, but=but, values=values)
    if found is None:
        await parts.approvals.standing.check_not_begun(asked)
        return None
    call.ready_at = time.monotonic()
    _check_unchanged(asked.subject, tool, parts.tools)
    if parts.policy.version != asked.subject.policy:
        raise NotBegunError(changed(tool))
    return found


async def _asked_again(
    call: Call, tool: RegisteredTool, text: str, approval: Approval, parts: ApprovalParts
) -> Verdict:
    """What the rules say by now of a call that waits for an approval, which is void if they don't ask for one."""
    try:
        return await _still_asking(call, tool, text, approval.asked, parts)
    except (NotBegunError, StepFailedError):
        if not call.request.is_named:
            await _withdraw(approval, parts.approvals)
        raise


async def _still_asking(call: Call, tool: RegisteredTool, text: str, subject: Subject, parts: ApprovalParts) -> Verdict:
    _check_unchanged(subject, tool, parts.tools)
    verdict = await _permitted(call, tool, text, parts)
    if verdict.permission is Permission.ALLOW:
        raise NotBegunError(changed(tool))
    return verdict


async def _check_given(tool: RegisteredTool, approval: Approval, asked: Asked, approvals: Approvals) -> None:
    if approval.state is ApprovalState.USED:
        raise CallTakenError("its approval is used up")
    if approval.state is ApprovalState.WITHDRAWN:  # maybe by the sidecar that has begun it with a standing one
        await approvals.standing.check_not_begun(asked)
    if approval.state is not ApprovalState.APPROVED:
        raise StepFailedError(not_approved(tool.name, approval.approval_id, approval.state.value, approval))


def _check_unchanged(subject: Subject, tool: RegisteredTool, tools: Tools) -> None:
    if change_of_tool(subject, tools.find(tool.name)):
        raise NotBegunError(changed(tool))


async def _permitted(call: Call, tool: RegisteredTool, text: str, parts: ApprovalParts) -> Verdict:
    """What the rules in force say of it. Waits for that where the arguments are large.

    Raises:
        StepFailedError: it may not run.
    """
    validated = functools.partial(validate_in_time, call, tool, parts.checks)
    verdict = await decide(parts.policy, tool, call.request.identity.name, text, validated)
    error = check_permission(tool, verdict)
    if error is not None:
        raise StepFailedError(error)
    return verdict


async def _edited(call: Call, tool: RegisteredTool, approval: Approval, parts: ApprovalParts) -> Accepted:
    """The arguments that an approver has put in place of the caller's: validated and permitted anew."""
    document = arguments_of(tool, approval.arguments_json, hashed=True)
    deadline = call.deadline(Bound.WAIT, call.ready_at, max(_SLACK_S, tool.timeout_s))
    prepared = settled(tool, await validate(call, tool, document, parts.checks, deadline))
    if isinstance(prepared, CallError):
        raise StepFailedError(prepared)
    await _permitted(call, tool, prepared.text, parts)
    if replace(approval.subject, arguments_sha256=prepared.canonical_sha256) != approval.subject:
        raise StepFailedError(not_approved(tool.name, approval.approval_id, "changed"))
    return prepared
