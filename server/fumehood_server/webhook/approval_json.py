"""Approvals as JSON: the fields that `fumehood approvals list --json` prints, and the message that carries them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from fumehood_server.model.approvals import Approval, Decision

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID_DIGEST_CHARS = 16


def message_id(approval: Approval) -> str:
    """`webhook-id`: the same for the same question, over retries and restarts; another once the arguments change."""
    return f"{approval.approval_id}-{approval.digest[:_ID_DIGEST_CHARS]}"


def requested_message(approval: Approval) -> bytes:
    """The body that tells of an approval. Takes tens of milliseconds for the largest: not for the event loop."""
    document = {
        "type": "approval.requested",
        "timestamp": iso_time(approval.requested_us),
        "data": _approval(approval),
    }
    # Not orjson: arguments may hold lone surrogates, which it can't write.
    return json.dumps(document, allow_nan=False).encode()


def iso_time(time_us: int) -> str:
    """A time (POSIX, microseconds) in ISO 8601."""
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="milliseconds")


def _approval(approval: Approval) -> dict[str, Any]:
    asked = approval.asked
    return {
        "approval_id": approval.approval_id,
        "state": approval.state.value,
        "void_reason": "",
        "call_id": approval.call,
        "tool": asked.tool,
        "plugin": approval.plugin,
        "side_effects": approval.side_effects,
        "arguments": _value(approval.arguments_json),
        "arguments_json": approval.arguments_json,
        "asked_arguments_json": approval.asked_json if approval.edited else "",
        "digest": approval.digest,
        "caller": _party(asked.caller, asked.caller_authenticated_by, approval.connection),
        "request_id": approval.context.get("request_id", ""),
        "session_id": approval.context.get("session_id", ""),
        "requirements": [
            {
                "rule": each.rule,
                "approvals": each.approvals,
                "approvers": list(each.approvers),
                "self_approval": each.self_approval,
                "standing": each.standing,
            }
            for each in approval.requirements
        ],
        "decisions": [_decision(each) for each in approval.decisions],
        "requested_at": iso_time(approval.requested_us),
        "expires_at": iso_time(approval.expires_us),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "choice": decision.choice.value,
        "by": _party(decision.by, decision.authenticated_by, decision.connection),
        "reason": decision.reason,
        "digest": decision.digest,
        "edited_digest": "" if decision.edited is None else decision.edited.digest,
        "standing_id": decision.standing_id,
        "decided_at": iso_time(decision.at_us),
    }


def _party(name: str, authenticated_by: str, connection: str) -> dict[str, str]:
    return {"name": name, "authenticated_by": authenticated_by, "connection": connection}


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """What the text holds; the text itself where a number of it would become infinite, which JSON has not."""
    if not text:
        return None
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


__all__ = ["iso_time", "message_id", "requested_message"]
