"""What the journal keeps of approvals as they are asked for and decided: documents and events, as pure functions."""

from __future__ import annotations

import os

from fumehood_server.model.approval_events import ApprovalDecided, ApprovalRequested, ApprovalWithdrawn
from fumehood_server.model.approvals import Approval, ApprovalState, Asked, Choice, Decision
from fumehood_server.model.events import About, Event, payload_of
from fumehood_server.model.tool import Payloads
from fumehood_server.policy.interfaces import DeskSettings

_US = 1_000_000
ID_BYTES = 12
"""Random ones of an id."""


def new_approval(asked: Asked, settings: DeskSettings, *, now_us: int) -> Approval:
    """One that waits to be decided, for as long as the settings say."""
    subject = asked.subject
    return Approval(
        approval_id=f"approval-{os.urandom(ID_BYTES).hex()}",
        call_id=asked.call_id,
        run_id=asked.run_id,
        context=dict(asked.context),
        plugin=asked.plugin,
        side_effects=asked.side_effects,
        state=ApprovalState.PENDING,
        subject=subject,
        arguments_json=asked.arguments_json,
        asked=subject,
        asked_json=asked.arguments_json,
        connection=asked.connection,
        requirements=asked.requirements,
        requested_us=now_us,
        expires_us=now_us + round(settings.decide_within_s * _US),
        use_within_us=round(settings.use_within_s * _US),
        payloads=asked.payloads.value,
    )


def requested_event(approval: Approval, asked: Asked) -> tuple[ApprovalRequested, tuple[bytes, ...]]:
    """That it was asked for, and what is kept of the arguments."""
    subject = asked.subject
    digested, kept = payload_of(asked.arguments_json.encode(errors="surrogatepass"), asked.payloads)
    event = ApprovalRequested(
        approval_id=approval.approval_id,
        digest=approval.digest,
        arguments_hash="" if asked.payloads is Payloads.OFF else subject.arguments_sha256,
        arguments=digested,
        side_effects=asked.side_effects,
        definition=subject.definition,
        plugin=subject.plugin,
        policy=subject.policy,
        rules=tuple(each.rule for each in asked.requirements),
        caller=subject.caller,
        authenticated_by=subject.caller_authenticated_by,
        connection=asked.connection,
        expires_us=approval.expires_us,
    )
    return event, kept


def decided_event(approval: Approval, decision: Decision) -> tuple[Event, tuple[bytes, ...]]:
    """That it was decided or withdrawn, and what is kept of the arguments that were put in place of the caller's."""
    kept: tuple[bytes, ...] = ()
    event: Event
    if decision.choice is Choice.WITHDRAW:
        event = ApprovalWithdrawn(
            approval_id=approval.approval_id,
            by=decision.by,
            authenticated_by=decision.authenticated_by,
            connection=decision.connection,
            reason=decision.reason,
        )
    else:
        event = ApprovalDecided(
            approval_id=approval.approval_id,
            choice=decision.choice.value,
            digest=decision.digest,
            by=decision.by,
            authenticated_by=decision.authenticated_by,
            connection=decision.connection,
            reason=decision.reason,
            standing_id=decision.standing_id,
        )
        if decision.edited is not None:
            payloads = Payloads(approval.payloads)
            event.edited_digest = decision.edited.digest
            event.arguments_hash = "" if payloads is Payloads.OFF else decision.edited.arguments_sha256
            event.arguments, kept = payload_of(decision.edited_json.encode(errors="surrogatepass"), payloads)
    return event, kept


def about_of(approval: Approval) -> About:
    """Whose call it is, for each of its events."""
    return About(
        call_id=approval.call,
        run_id=approval.run_id,
        tool=approval.asked.tool,
        plugin=approval.plugin,
        context=approval.context,
        numbered=False,
    )
