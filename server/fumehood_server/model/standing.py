"""Standing approvals: leave for later calls that are like one that was approved, for a time, a count, a session.

One is bound to all that an approval is bound to, but for the call. With conditions over the arguments it is for each
call whose arguments fit them, without any for calls of exactly the arguments that were approved. It is a document: each
change makes a new one from the last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import orjson

from fumehood_server.model.approvals import Approval, Asked, Subject
from fumehood_server.model.policy import Condition

MOST_CALLS = 1_000_000


class StandingState(StrEnum):
    """Where a standing approval stands."""

    ACTIVE = "active"
    USED_UP = "used_up"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingTerms:
    """What an approver asks for, checked."""

    until_us: int
    """POSIX time."""
    calls: int = 0
    """How many calls beside the one that is approved. 0: any number."""
    is_for_session: bool = False
    """Whether it is for the session of that call alone."""
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """Who took it back, when and why."""

    by: str
    authenticated_by: str
    connection: str
    reason: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One standing approval as it stands."""

    standing_id: str
    approval_id: str
    """The approval that it was given with."""
    call_id: str
    """The call of that approval."""
    run_id: str
    asked_from: str
    """Connection of that call's caller."""
    plugin: str
    """Its name."""
    side_effects: str
    subject: Subject
    """What it is for. Without a digest of arguments where conditions stand in its place."""
    rules: tuple[str, ...]
    """Those that ask for an approval of such calls."""
    session_id: str
    """Empty: any session."""
    conditions: tuple[Condition, ...]
    calls: int
    """0: any number."""
    granted_us: int
    until_us: int
    by: str
    authenticated_by: str
    connection: str
    reason: str
    used: int = 0
    revoked: Revocation | None = None

    @property
    def binding(self) -> str:
        """Digest of what all calls have in common that it may be for."""
        return binding_of(self.subject)

    @property
    def is_open(self) -> bool:
        """Whether it may be used, as long as its time is not over."""
        return self.revoked is None and not self.is_used_up

    @property
    def is_used_up(self) -> bool:
        """Whether as many calls have begun with it as may."""
        return 0 < self.calls <= self.used

    def state(self, now_us: int) -> StandingState:
        """Where it stands at a time."""
        if self.revoked is not None:
            return StandingState.REVOKED
        if self.is_used_up:
            return StandingState.USED_UP
        return StandingState.EXPIRED if now_us >= self.until_us else StandingState.ACTIVE

    def to_json(self) -> bytes:
        """As it is kept."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Standing:
        """What was kept."""
        fields: dict[str, Any] = orjson.loads(data)
        fields["subject"] = Subject(**fields["subject"])
        fields["rules"] = tuple(fields["rules"])
        fields["conditions"] = tuple(_condition(each) for each in fields["conditions"])
        revoked = fields["revoked"]
        fields["revoked"] = None if revoked is None else Revocation(**revoked)
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingUse:
    """What a call begins with that a standing approval is for."""

    standing: Standing
    subject: Subject
    """What the call would have had approved."""
    session_id: str
    rules: tuple[str, ...]
    """Those that ask for an approval of it."""
    waiting: Approval | None = None
    """The approval that it had asked for before, which nobody has to decide any more."""


class UsedStanding(NamedTuple):
    """That a call has begun with one."""

    standing_id: str
    digest: str
    """Of what the call was."""
    at_us: int


ValuesOf = Callable[[frozenset[str]], Awaitable[Any]]
"""What JSON pointers find in a call's arguments (`validation.pointer_values`). Small arguments themselves, as text."""


class StandingApprovals(Protocol):
    """Where calls look for standing approvals. Each method may raise JournalUnavailableError."""

    async def find(
        self, asked: Asked, arguments_json: str, *, but: frozenset[str], values: ValuesOf | None = None
    ) -> StandingUse | None:
        """One that is for the call and could be used now, but for some. None: there is none.

        Nor where the call's own approval was decided. `arguments_json`: as the tool gets them. `values` finds what
        conditions look at; None: they are small.
        """

    async def of_call(self, call_id: str) -> UsedStanding | None:
        """The one that a recorded call has begun with, the newest of this id. None: it has begun with none."""

    async def check_not_begun(self, asked: Asked) -> None:
        """Let a call ask for an approval that another sidecar has not begun with a standing one.

        Raises:
            CallTakenError: another sidecar has the call.
        """


def binding_of(subject: Subject) -> str:
    """Digest of a subject but for its arguments."""
    return replace(subject, arguments_sha256="").digest


def _condition(fields: dict[str, Any]) -> Condition:
    return Condition(**{**fields, "equals": tuple(fields["equals"])})
