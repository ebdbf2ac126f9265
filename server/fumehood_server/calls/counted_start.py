"""Records the start of a call that uses an approval or takes something of quotas, in one transaction with that."""

from __future__ import annotations

from fumehood_server.calls.call import Call
from fumehood_server.calls.errors import NotBegunError, StandingLostError, StepFailedError
from fumehood_server.calls.steps.approval_errors import not_approved
from fumehood_server.calls.steps.quota import exceeded_error
from fumehood_server.calls.steps.writable import not_run
from fumehood_server.errors import CallTakenError, JournalUnavailableError
from fumehood_server.model.approval_changes import Use
from fumehood_server.model.approval_events import ApprovalUsed
from fumehood_server.model.approvals import Approval, ApprovalRefusedError, ApprovalState, Choice
from fumehood_server.model.events import About, ExecuteStart
from fumehood_server.model.journal import Journal
from fumehood_server.model.quota_events import QuotaRefused
from fumehood_server.model.quotas import QuotaExceededError
from fumehood_server.model.standing import StandingUse
from fumehood_server.model.standing_changes import UseStanding
from fumehood_server.model.standing_events import StandingUsed


async def commit_counted_start(
    journal: Journal,
    call: Call,
    event: ExecuteStart,
    kept: tuple[bytes, ...],
    approved: Approval | StandingUse | None,
) -> None:
    """Return once it is on disk that the call uses its approval, or recorded what it takes of quotas.

    `call.about` is set, and unset again where the call does not begin.

    Raises:
        CallTakenError: another sidecar has the call.
        NotBegunError: a quota has not as much left as it takes.
        StandingLostError: a standing approval can't be used any more.
        StepFailedError: its own approval can't be used, or the journal can't be written.
    """
    about = _about(call)
    try:
        if isinstance(approved, StandingUse):
            await _commit_standing(journal, call, event, kept, approved)
        elif approved is not None:
            await _commit_approved(journal, call, event, kept, approved)
        else:
            # What counts outlives a kill. One with effects waits for its attempt to be on disk, and so for this.
            await journal.commit(event, about, kept, lasting=False)
    except QuotaExceededError as exc:
        call.about = None
        tool = call.request.tool
        refused = QuotaRefused.of(exc.exceeded, call_id=about.call_id, caller=call.request.caller)
        journal.record(refused, About(tool=about.tool, plugin=about.plugin, context=about.context))
        raise NotBegunError(exceeded_error(f"{tool} was not run", exc.exceeded)) from exc
    except CallTakenError:
        raise
    except JournalUnavailableError as exc:
        raise StepFailedError(not_run(call.request.tool, f"the journal can't be written: {exc}")) from exc


async def _commit_approved(
    journal: Journal, call: Call, event: ExecuteStart, kept: tuple[bytes, ...], approved: Approval
) -> None:
    about, digest, tool = _about(call), approved.digest, call.request.tool
    used = ApprovalUsed(
        approval_id=approved.approval_id,
        digest=digest,
        approvers=tuple(each.by for each in approved.decisions if each.choice is Choice.APPROVE),
    )
    use = Use(approved.approval_id, call.request.call_id, digest)
    try:
        await journal.commit_approved(event, about, kept, use, used)
    except ApprovalRefusedError as exc:
        call.about = None
        if exc.reason == ApprovalState.USED.value:  # it is one call's: that of this id
            raise CallTakenError(str(exc)) from exc
        raise StepFailedError(not_approved(tool, approved.approval_id, exc.reason)) from exc


async def _commit_standing(
    journal: Journal, call: Call, event: ExecuteStart, kept: tuple[bytes, ...], found: StandingUse
) -> None:
    standing = found.standing
    used = StandingUsed(
        standing_id=standing.standing_id,
        digest=found.subject.digest,
        granted_with=standing.call_id,
        approvers=(standing.by,),
    )
    use = UseStanding(standing.standing_id, found.subject, found.session_id, found.rules)
    try:
        await journal.commit_approved(event, _about(call), kept, use, used)
    except ApprovalRefusedError as exc:
        call.about = None
        raise StandingLostError(standing.standing_id, str(exc)) from exc


def _about(call: Call) -> About:
    if call.about is None:
        raise AssertionError("who records the start has said what it is about")
    return call.about
