"""What the journal records of standing approvals. Who gives and revokes one is about the call that it began with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fumehood_server.model.events import Event
from fumehood_server.model.standing import Standing


@dataclass(slots=True, kw_only=True)
class StandingGranted(Event):
    """Somebody has made their approval a standing one: in the transaction of that decision."""

    TYPE: ClassVar[str] = "standing_approval_granted"
    standing_id: str
    approval_id: str
    digest: str
    """Of what it is for: as an approval's, without arguments where there are conditions."""
    definition: str
    plugin: str
    """Digest of the plugin's files."""
    policy: str
    """Version of the rules."""
    rules: tuple[str, ...]
    caller: str
    """Name of whose calls it is for. Empty: it has none."""
    caller_authenticated_by: str
    side_effects: str
    session_id: str
    """Empty: any."""
    conditions: tuple[dict[str, Any], ...]
    """Over the arguments. None: they must be the ones that were approved."""
    calls: int
    """How many may begin with it. 0: any number."""
    granted_us: int
    until_us: int
    by: str
    authenticated_by: str
    connection: str
    reason: str


@dataclass(slots=True, kw_only=True)
class StandingUsed(Event):
    """A call has begun with it: in the transaction of that call's start."""

    TYPE: ClassVar[str] = "standing_approval_used"
    standing_id: str
    digest: str
    """Of what an approval of this call would be bound to."""
    granted_with: str
    """The call whose record says who gave it and on what terms."""
    approvers: tuple[str, ...]
    """Names of who gave it."""


@dataclass(slots=True, kw_only=True)
class StandingRevoked(Event):
    """Somebody has taken it back."""

    TYPE: ClassVar[str] = "standing_approval_revoked"
    standing_id: str
    by: str
    authenticated_by: str
    connection: str
    reason: str
    at_us: int


def granted_event(standing: Standing) -> StandingGranted:
    """What is recorded as it is given: all that it says, but for what follows on it."""
    subject = standing.subject
    return StandingGranted(
        standing_id=standing.standing_id,
        approval_id=standing.approval_id,
        digest=subject.digest,
        definition=subject.definition,
        plugin=subject.plugin,
        policy=subject.policy,
        rules=standing.rules,
        caller=subject.caller,
        caller_authenticated_by=subject.caller_authenticated_by,
        side_effects=standing.side_effects,
        session_id=standing.session_id,
        conditions=tuple(
            {
                "pointer": each.pointer,
                "equals": list(each.equals),
                "pattern": each.pattern,
                "min": each.min,
                "max": each.max,
            }
            for each in standing.conditions
        ),
        calls=standing.calls,
        granted_us=standing.granted_us,
        until_us=standing.until_us,
        by=standing.by,
        authenticated_by=standing.authenticated_by,
        connection=standing.connection,
        reason=standing.reason,
    )
