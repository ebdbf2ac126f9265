"""What may follow on what for a standing approval. A database asks this under its lock, as for approvals."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

from fumehood_server.model.approvals import ApprovalRefusedError, Subject
from fumehood_server.model.standing import Revocation, Standing, StandingState, binding_of


class StandingChange(Protocol):
    """What an event says of a standing approval."""

    @property
    def standing_id(self) -> str:
        """Of which."""

    def applied(self, current: Standing | None, now_us: int) -> Standing:
        """The standing approval after it.

        Raises:
            ApprovalRefusedError: this may not follow.
        """


@dataclass(frozen=True, slots=True)
class Grant:
    """It is given: recorded with the decision about a call."""

    standing: Standing

    @property
    def standing_id(self) -> str:
        """See `StandingChange`."""
        return self.standing.standing_id

    def applied(self, current: Standing | None, now_us: int) -> Standing:  # noqa: ARG002 - as in the protocol
        """See `StandingChange`."""
        return current or self.standing


@dataclass(frozen=True, slots=True)
class UseStanding:
    """A call begins with it: recorded with the call's intent."""

    standing_id: str
    subject: Subject
    session_id: str
    rules: tuple[str, ...]
    """Those that ask for an approval of the call."""

    def applied(self, current: Standing | None, now_us: int) -> Standing:
        """See `StandingChange`."""
        found = _known(current, self.standing_id)
        state = found.state(now_us)
        if state is not StandingState.ACTIVE:
            raise ApprovalRefusedError(state.value, f"{self.standing_id} is {state.value.replace('_', ' ')}")
        if not is_for(found, self.subject, session_id=self.session_id, rules=self.rules):
            raise ApprovalRefusedError("changed", f"{self.standing_id} was given for something else")
        return replace(found, used=found.used + 1)


@dataclass(frozen=True, slots=True)
class ConfirmStanding:
    """A call that has begun with it is about to be sent to a worker for the first time. Nothing changes."""

    standing_id: str

    def applied(self, current: Standing | None, now_us: int) -> Standing:  # noqa: ARG002 - as in the protocol
        """See `StandingChange`. Its time and its count were asked when the call began."""
        found = _known(current, self.standing_id)
        if found.revoked is not None:
            raise ApprovalRefusedError(StandingState.REVOKED.value, f"{self.standing_id} was revoked")
        return found


@dataclass(frozen=True, slots=True)
class Revoke:
    """Somebody takes it back."""

    standing_id: str
    revocation: Revocation

    def applied(self, current: Standing | None, now_us: int) -> Standing:
        """See `StandingChange`. One that is used up or out of time may be: its last calls may wait for a worker."""
        found = _known(current, self.standing_id)
        if found.revoked is not None:
            raise ApprovalRefusedError(found.state(now_us).value, f"{self.standing_id} is revoked already")
        return replace(found, revoked=self.revocation)


def is_for(found: Standing, subject: Subject, *, session_id: str, rules: Collection[str]) -> bool:
    """Whether it is for calls like this one, but for its conditions.

    A rule that asks for this call and not for the first one may want other approvers.
    """
    if (
        not {*rules} <= {*found.rules}
        or found.binding != binding_of(subject)
        or found.session_id not in {"", session_id}
    ):
        return False
    return found.subject.arguments_sha256 == ("" if found.conditions else subject.arguments_sha256)


def _known(current: Standing | None, standing_id: str) -> Standing:
    if current is None:
        raise ApprovalRefusedError("not_found", f"there is no standing approval {standing_id}")
    return current
