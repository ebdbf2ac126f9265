"""Approvals: their states, and the one place that says what may follow on what.

An approval is bound to a digest of all that is approved. It is a document: each change makes a new one from the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from fumehood_server.model.caller import Authentication, Caller
from fumehood_server.model.policy import Requirement
from fumehood_server.model.tool import Payloads

if TYPE_CHECKING:
    from fumehood_server.model.standing import StandingApprovals


class ApprovalState(StrEnum):
    """Where an approval stands."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    USED = "used"

    @property
    def is_open(self) -> bool:
        """Whether something may still follow."""
        return self in {ApprovalState.PENDING, ApprovalState.APPROVED}


class Choice(StrEnum):
    """What somebody decides."""

    APPROVE = "approve"
    DENY = "deny"
    WITHDRAW = "withdraw"


class ApprovalRefusedError(Exception):
    """An approval can't be changed so. `reason` is stable."""

    def __init__(self, reason: str, message: str, decided: Decision | None = None) -> None:
        """Keep the reason, and the decision that was quicker, where there was one."""
        super().__init__(message)
        self.reason = reason
        self.decided = decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What an approval is bound to. Each field is in its digest."""

    tool: str
    arguments_sha256: str
    """Of their canonical form (RFC 8785), as the tool gets them."""
    definition: str
    plugin: str
    """Digest of the plugin's files."""
    caller: str
    """Name of the asking caller. Empty: it has none."""
    caller_authenticated_by: str
    policy: str
    """Version of the rules."""
    permission: str
    """Of the tool itself."""
    sandbox: str = ""
    """Digest of what its process may touch: see `WorkerSpec.reach`. Empty: of an earlier version, which fits none."""

    @property
    def digest(self) -> str:
        """SHA-256 of all of it as JSON with sorted keys."""
        data = orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Somebody's word about an approval."""

    choice: Choice
    by: str
    """Name of who decided. Empty: whoever reaches the unix socket."""
    authenticated_by: str
    connection: str
    reason: str
    digest: str
    """Of what they saw."""
    at_us: int
    edited: Subject | None = None
    """What they approved in its place."""
    edited_json: str = ""
    standing_id: str = ""
    """The standing approval that they made of it. Empty: none."""

    @property
    def decider(self) -> tuple[str, str]:
        """Whom it counts for."""
        return (self.by, "" if self.by else self.authenticated_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """One approval as it stands."""

    approval_id: str
    call_id: str
    run_id: str
    context: dict[str, str]
    plugin: str
    """Its name."""
    side_effects: str
    state: ApprovalState
    subject: Subject
    """What is approved now: an edit puts another in its place."""
    arguments_json: str
    """Empty once it is closed: events keep them, as long as the operator wants them kept."""
    asked: Subject
    asked_json: str
    connection: str
    """Of who asks, as gRPC names it."""
    requirements: tuple[Requirement, ...]
    requested_us: int
    expires_us: int
    """POSIX time: of the decision while it waits for one, of the use after it."""
    use_within_us: int
    payloads: str = "full"
    decisions: tuple[Decision, ...] = ()

    @property
    def call(self) -> str:
        """The id of its call. `call_id` names the call's question behind it, where the approval answers one."""
        return self.call_id.partition("?")[0]

    @property
    def question(self) -> str:
        """The id of the question that it answers. Empty: it is for the call itself."""
        return self.call_id.partition("?")[2]

    @property
    def digest(self) -> str:
        """Of what is approved."""
        return self.subject.digest

    @property
    def asker(self) -> Caller:
        """Who asks."""
        by = Authentication(self.asked.caller_authenticated_by)
        return Caller(name=self.asked.caller, authenticated_by=by, connection=self.connection)

    @property
    def edited(self) -> bool:
        """Whether somebody has changed the arguments."""
        return self.subject != self.asked

    def to_json(self) -> bytes:
        """As it is kept."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Approval:
        """What was kept."""
        fields: dict[str, Any] = orjson.loads(data)
        for name in ("subject", "asked"):
            fields[name] = Subject(**fields[name])
        fields["state"] = ApprovalState(fields["state"])
        fields["requirements"] = tuple(_requirement(each) for each in fields["requirements"])
        fields["decisions"] = tuple(_decision(each) for each in fields["decisions"])
        return cls(**fields)


def _requirement(fields: dict[str, Any]) -> Requirement:
    return Requirement(**{**fields, "approvers": tuple(fields["approvers"])})


def _decision(fields: dict[str, Any]) -> Decision:
    edited = fields["edited"]
    return Decision(
        **{**fields, "choice": Choice(fields["choice"]), "edited": None if edited is None else Subject(**edited)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a call asks for."""

    call_id: str
    run_id: str
    context: Mapping[str, str]
    plugin: str
    side_effects: str
    subject: Subject
    arguments_json: str
    """As they may be shown and kept: without secrets."""
    payloads: Payloads
    requirements: tuple[Requirement, ...]
    connection: str


class Approvals(Protocol):
    """Where calls ask for approvals."""

    @property
    def grants(self) -> int:
        """How many standing approvals this sidecar has heard of so far: see `decided`."""

    @property
    def standing(self) -> StandingApprovals:
        """Those that were given for calls to come."""

    async def obtain(self, asked: Asked) -> Approval:
        """The approval of a call: the one that it was given or waits for, else a new one.

        Raises:
            JournalUnavailableError: it can't be had or recorded.
            ApprovalRefusedError: too many are open.
            RefusedError: the call's id is that of another caller's call.
        """

    async def decided(self, approval: Approval, grants: int) -> Approval:
        """The approval once it is no longer pending, or once a standing approval was given for calls like its own.

        `grants`: as it was when one was looked for last. Raises JournalUnavailableError.
        """

    async def withdraw(self, approval: Approval, reason: str) -> Approval:
        """Take it back. Raises JournalUnavailableError and ApprovalRefusedError."""

    async def of_call(self, call_id: str) -> Approval | None:
        """The newest of a call. Raises JournalUnavailableError."""

    def used(self, approval: Approval) -> None:
        """A call has begun with it."""


def is_same(asker: Caller, name: str, connection: str) -> bool:
    """Whether somebody is the asking caller. All connections to unix sockets have one name, which says nothing."""
    if asker.name or name:
        return asker.name == name
    return asker.connection == connection and asker.authenticated_by is not Authentication.PEER


def may_be_same(asker: Caller, name: str, connection: str) -> bool:
    """Whether somebody may be the asking caller: by `is_same`, or with a name on the connection where it has none.

    Or without one where it has: it may be left out. For what is closed to the asking caller, and not what is open.
    """
    if bool(asker.name) is not bool(name) and asker.connection == connection:
        return True
    return is_same(asker, name, connection)


def may_count(found: Approval, name: str, connection: str) -> bool:
    """Whether an approval by this one would count for any of the requirements."""
    asker = found.asker
    return any(
        (not each.approvers or name in each.approvers)
        and (each.self_approval or not may_be_same(asker, name, connection))
        for each in found.requirements
    )
