"""Approvals as protobuf."""

from __future__ import annotations

from fumehood.v1 import approval_service_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level

from fumehood_server.model.approvals import Approval, ApprovalState, Choice
from fumehood_server.model.side_effects import SIDE_EFFECTS

STATES = {
    ApprovalState.PENDING: pb.APPROVAL_STATE_PENDING,
    ApprovalState.APPROVED: pb.APPROVAL_STATE_APPROVED,
    ApprovalState.DENIED: pb.APPROVAL_STATE_DENIED,
    ApprovalState.EXPIRED: pb.APPROVAL_STATE_EXPIRED,
    ApprovalState.WITHDRAWN: pb.APPROVAL_STATE_WITHDRAWN,
    ApprovalState.USED: pb.APPROVAL_STATE_USED,
}
CHOICES = {
    Choice.APPROVE: pb.APPROVAL_CHOICE_APPROVE,
    Choice.DENY: pb.APPROVAL_CHOICE_DENY,
    Choice.WITHDRAW: pb.APPROVAL_CHOICE_WITHDRAW,
}


def approval_message(approval: Approval, void_reason: str) -> pb.Approval:
    """One approval. `void_reason`: why it lets nothing begin, where it is void."""
    asked = approval.asked
    message = pb.Approval(
        approval_id=approval.approval_id,
        state=STATES[approval.state],
        call_id=approval.call,
        tool=asked.tool,
        plugin=approval.plugin,
        side_effects=SIDE_EFFECTS[Level(approval.side_effects)],
        arguments_json=approval.arguments_json,
        asked_arguments_json=approval.asked_json if approval.edited else "",
        digest=approval.digest,
        caller=party_message(asked.caller, asked.caller_authenticated_by, approval.connection),
        context=tool_pb2.CallContext(**approval.context),
        void_reason=void_reason,
        requirements=[
            pb.ApprovalRequirement(
                rule=each.rule,
                approvals=each.approvals,
                approvers=each.approvers,
                self_approval=each.self_approval,
                standing=each.standing,
            )
            for each in approval.requirements
        ],
    )
    message.requested_at.FromMicroseconds(approval.requested_us)
    message.expires_at.FromMicroseconds(approval.expires_us)
    for each in approval.decisions:
        decision = message.decisions.add(
            choice=CHOICES[each.choice],
            by=party_message(each.by, each.authenticated_by, each.connection),
            reason=each.reason,
            digest=each.digest,
            edited_digest="" if each.edited is None else each.edited.digest,
            standing_id=each.standing_id,
        )
        decision.decided_at.FromMicroseconds(each.at_us)
    return message


def party_message(name: str, authenticated_by: str, connection: str) -> pb.ApprovalParty:
    """Who asks or decides."""
    return pb.ApprovalParty(name=name, authenticated_by=authenticated_by, connection=connection)
