"""Standing approvals as protobuf, and the terms that an approver asks for."""

from __future__ import annotations

import json

from fumehood.v1 import approval_service_pb2 as pb
from fumehood_sandbox import Level

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.condition_checks import MAX_VALUE_CHARS, MAX_VALUES
from fumehood_server.model.durations import duration_s
from fumehood_server.model.policy import Condition, Scalar
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.model.standing import Standing, StandingState
from fumehood_server.policy.standing_terms import MAX_CONDITIONS, AskedTerms
from fumehood_server.rpc.approval_messages import party_message

STATES = {
    StandingState.ACTIVE: pb.STANDING_APPROVAL_STATE_ACTIVE,
    StandingState.USED_UP: pb.STANDING_APPROVAL_STATE_USED_UP,
    StandingState.EXPIRED: pb.STANDING_APPROVAL_STATE_EXPIRED,
    StandingState.REVOKED: pb.STANDING_APPROVAL_STATE_REVOKED,
}
MAX_ALL_VALUES = 2_048
"""Of all conditions together: each is read as JSON, in some 4 µs."""
MAX_FIELDS = 4_096
"""Fields of a long decision, with its conditions and their values."""
_MAX_JSON_CHARS = 6 * MAX_VALUE_CHARS + 2
"""Of a value whose every character is escaped."""


def standing_message(found: Standing, *, now_us: int, applies: bool) -> pb.StandingApproval:
    """One standing approval."""
    subject, revoked = found.subject, found.revoked
    message = pb.StandingApproval(
        standing_id=found.standing_id,
        state=STATES[found.state(now_us)],
        tool=subject.tool,
        plugin=found.plugin,
        side_effects=SIDE_EFFECTS[Level(found.side_effects)],
        caller=party_message(subject.caller, subject.caller_authenticated_by, found.asked_from),
        session_id=found.session_id,
        conditions=[_condition_message(each) for each in found.conditions],
        calls=found.calls,
        used=found.used,
        granted_by=party_message(found.by, found.authenticated_by, found.connection),
        reason=found.reason,
        approval_id=found.approval_id,
        call_id=found.call_id,
        rules=found.rules,
        applies=applies,
    )
    message.granted_at.FromMicroseconds(found.granted_us)
    message.expires_at.FromMicroseconds(found.until_us)
    if revoked is not None:
        message.revoked_by.CopyFrom(party_message(revoked.by, revoked.authenticated_by, revoked.connection))
        message.revoke_reason = revoked.reason
        message.revoked_at.FromMicroseconds(revoked.at_us)
    return message


def asked_terms(message: pb.StandingTerms) -> AskedTerms:
    """What an approver asks for.

    Raises:
        RefusedError: a condition has a value that is none.
    """
    if len(message.conditions) > MAX_CONDITIONS:
        raise _invalid(f"standing: there are more than {MAX_CONDITIONS} conditions")
    if sum(len(each.one_of_json) for each in message.conditions) > MAX_ALL_VALUES:
        raise _invalid(f"standing: the conditions name more than {MAX_ALL_VALUES:,} values together")
    return AskedTerms(
        until_us=message.until.ToMicroseconds() if message.HasField("until") else None,
        lasts_s=duration_s(message.valid_for) if message.HasField("valid_for") else None,
        calls=message.calls,
        is_for_session=message.session,
        conditions=tuple(_condition(each) for each in message.conditions),
    )


def _condition(message: pb.ArgumentCondition) -> Condition:
    if len(message.one_of_json) > MAX_VALUES:
        raise _invalid(f"standing: a condition names more than {MAX_VALUES:,} values")
    return Condition(
        pointer=message.pointer,
        equals=tuple(_scalar(each) for each in message.one_of_json),
        pattern=message.pattern,
        min=message.min if message.HasField("min") else None,
        max=message.max if message.HasField("max") else None,
    )


def _scalar(text: str) -> Scalar:
    try:
        value = json.loads(text) if len(text) <= _MAX_JSON_CHARS else None
        json.dumps(value, allow_nan=False).encode()
    except (ValueError, RecursionError):
        value = None
    is_large = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    if not isinstance(value, str | int | float | bool) or is_large or (isinstance(value, str) and not _is_text(value)):
        raise _invalid(f"standing: {text[:64]!r} in one_of_json is no text, number or boolean as JSON")
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _condition_message(condition: Condition) -> pb.ArgumentCondition:
    return pb.ArgumentCondition(
        pointer=condition.pointer,
        one_of_json=[json.dumps(each, ensure_ascii=False) for each in condition.equals],
        pattern=condition.pattern,
        min=condition.min,
        max=condition.max,
    )


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
