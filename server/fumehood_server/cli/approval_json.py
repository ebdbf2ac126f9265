"""Approvals as the commands print them."""

from __future__ import annotations

from datetime import UTC

from fumehood.v1 import approval_service_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from fumehood_server.cli.json_output import JsonObject, level_name
from fumehood_server.cli.output import json_or_text


def approval_json(message: pb.Approval) -> JsonObject:
    """One approval."""
    return {
        "approval_id": message.approval_id,
        "state": pb.ApprovalState.Name(message.state).removeprefix("APPROVAL_STATE_").lower(),
        "void_reason": message.void_reason,
        "call_id": message.call_id,
        "tool": message.tool,
        "plugin": message.plugin,
        "side_effects": level_name(message.side_effects),
        "arguments": json_or_text(message.arguments_json),
        "arguments_json": message.arguments_json,
        "asked_arguments_json": message.asked_arguments_json,
        "digest": message.digest,
        "caller": _party(message.caller),
        "request_id": message.context.request_id,
        "session_id": message.context.session_id,
        "requirements": [
            {
                "rule": each.rule,
                "approvals": each.approvals,
                "approvers": list(each.approvers),
                "self_approval": each.self_approval,
                "standing": each.standing,
            }
            for each in message.requirements
        ],
        "decisions": [
            {
                "choice": pb.ApprovalChoice.Name(each.choice).removeprefix("APPROVAL_CHOICE_").lower(),
                "by": _party(each.by),
                "reason": each.reason,
                "digest": each.digest,
                "edited_digest": each.edited_digest,
                "standing_id": each.standing_id,
                "decided_at": _time(each.decided_at),
            }
            for each in message.decisions
        ],
        "requested_at": _time(message.requested_at),
        "expires_at": _time(message.expires_at),
    }


def standing_json(message: pb.StandingApproval) -> JsonObject:
    """One standing approval."""
    revoked = None
    if message.HasField("revoked_by"):
        revoked = {
            "by": _party(message.revoked_by),
            "reason": message.revoke_reason,
            "revoked_at": _time(message.revoked_at),
        }
    return {
        "standing_id": message.standing_id,
        "state": pb.StandingApprovalState.Name(message.state).removeprefix("STANDING_APPROVAL_STATE_").lower(),
        "applies": message.applies,
        "tool": message.tool,
        "plugin": message.plugin,
        "side_effects": level_name(message.side_effects),
        "caller": _party(message.caller),
        "session_id": message.session_id,
        "conditions": [_condition_json(each) for each in message.conditions],
        "calls": message.calls,
        "used": message.used,
        "granted_at": _time(message.granted_at),
        "expires_at": _time(message.expires_at),
        "granted_by": _party(message.granted_by),
        "reason": message.reason,
        "approval_id": message.approval_id,
        "call_id": message.call_id,
        "rules": list(message.rules),
        "revoked": revoked,
    }


def _condition_json(message: pb.ArgumentCondition) -> JsonObject:
    return {
        "pointer": message.pointer,
        "one_of": [json_or_text(each) for each in message.one_of_json],
        "pattern": message.pattern,
        "min": message.min if message.HasField("min") else None,
        "max": message.max if message.HasField("max") else None,
    }


def asker_text(party: JsonObject) -> str:
    """Who it is, in a word or two."""
    return str(party["name"] or f"{party['connection']} (no name)")


def _party(message: pb.ApprovalParty) -> JsonObject:
    return {
        "name": message.name,
        "authenticated_by": message.authenticated_by,
        "connection": message.connection,
    }


def _time(message: Timestamp) -> str:
    return message.ToDatetime(UTC).isoformat(timespec="milliseconds")
