"""What may follow on what for an approval: each change makes the next document from the last, or is refused.

A database asks this under its lock, so that two who decide at once are one after the other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

from fumehood_server.model.approvals import (
    Approval,
    ApprovalRefusedError,
    ApprovalState,
    Choice,
    Decision,
    may_be_same,
)
from fumehood_server.model.policy import Requirement

MAX_DECISIONS = 64
"""Of one approval that is still open: each edit asks everybody anew, and all of it is read and written each time."""


class Change(Protocol):
    """What an event says of an approval. The database asks it, under its lock, what follows."""

    @property
    def approval_id(self) -> str:
        """Of which."""

    def applied(self, current: Approval | None, now_us: int) -> Approval:
        """The approval after it.

        Raises:
            ApprovalRefusedError: this may not follow.
        """


@dataclass(frozen=True, slots=True)
class Request:
    """A call asks for one."""

    approval: Approval

    @property
    def approval_id(self) -> str:
        """See `Change`."""
        return self.approval.approval_id

    def applied(self, current: Approval | None, now_us: int) -> Approval:  # noqa: ARG002 - as in the protocol
        """See `Change`."""
        return current or self.approval


@dataclass(frozen=True, slots=True)
class Decide:
    """Somebody decides."""

    approval_id: str
    decision: Decision
    requirements: tuple[Requirement, ...] = ()
    """Of what they put in its place. Empty: those that there are."""

    def applied(self, current: Approval | None, now_us: int) -> Approval:
        """See `Change`. A denial is the last word; approvals count until each requirement has enough of them."""
        decision = self.decision
        found = _open(current, self.approval_id, now_us)
        if decision.choice is Choice.WITHDRAW:
            return _closed(found, ApprovalState.WITHDRAWN, decision)
        if found.state is not ApprovalState.PENDING:
            raise _decided(found, "decided")
        if decision.digest != found.digest:
            problem = f"{self.approval_id} is no longer what was decided about: look at it again"
            raise ApprovalRefusedError("changed", problem)
        if decision.choice is Choice.DENY:
            return _closed(found, ApprovalState.DENIED, decision)
        if any(each.decider == decision.decider for each in _standing(found)) and decision.edited is None:
            raise ApprovalRefusedError("decided", f"{decision.by or 'you'} approved {self.approval_id} already")
        if len(found.decisions) >= MAX_DECISIONS:
            raise ApprovalRefusedError(
                "decided", f"{self.approval_id} was decided about {MAX_DECISIONS} times: deny it"
            )
        earlier = found.decisions
        if decision.edited is not None:  # the events keep what earlier ones put in its place
            earlier = tuple(replace(each, edited_json="") for each in earlier)
        _check_standing(found, decision)
        found = replace(found, decisions=(*earlier, decision))
        if decision.edited is not None:
            asked_for = self.requirements or found.requirements
            edited, text = decision.edited, decision.edited_json
            found = replace(found, subject=edited, arguments_json=text, requirements=asked_for)
        if is_satisfied(found):
            return replace(found, state=ApprovalState.APPROVED, expires_us=now_us + found.use_within_us)
        return found


@dataclass(frozen=True, slots=True)
class Use:
    """A call uses it up: recorded with the call's intent."""

    approval_id: str
    call_id: str
    digest: str

    def applied(self, current: Approval | None, now_us: int) -> Approval:
        """See `Change`."""
        found = _open(current, self.approval_id, now_us)
        if found.state is not ApprovalState.APPROVED:
            raise ApprovalRefusedError(found.state.value, f"{self.approval_id} is {found.state.value}")
        if (found.call_id, found.digest) != (self.call_id, self.digest):
            raise ApprovalRefusedError("changed", f"{self.approval_id} was given for something else")
        return _closed(found, ApprovalState.USED)


@dataclass(frozen=True, slots=True)
class Expire:
    """Its time is over."""

    approval_id: str

    def applied(self, current: Approval | None, now_us: int) -> Approval:
        """See `Change`."""
        if current is None or not current.state.is_open or now_us < current.expires_us:
            raise ApprovalRefusedError("not_due", f"{self.approval_id} is closed, or has time")
        return _closed(current, ApprovalState.EXPIRED)


def _open(current: Approval | None, approval_id: str, now_us: int) -> Approval:
    if current is None:
        raise ApprovalRefusedError("not_found", f"there is no approval {approval_id}")
    if not current.state.is_open:
        raise _decided(current, current.state.value)
    if now_us >= current.expires_us:
        raise ApprovalRefusedError("expired", f"{approval_id} has expired")
    return current


def _check_standing(found: Approval, decision: Decision) -> None:
    """Whoever makes it stand must be enough alone: others have approved one call."""
    if decision.standing_id and not is_satisfied(replace(found, decisions=(decision,))):
        problem = f"{found.approval_id} takes more approvers than one: it can be approved for this call alone"
        raise ApprovalRefusedError("not_standing", problem)


def _decided(found: Approval, reason: str) -> ApprovalRefusedError:
    """Somebody was quicker: who it was is in the record, which the database reads under its lock."""
    last = found.decisions[-1] if found.decisions else None
    who = "" if last is None else f": {last.by or last.connection} ({last.authenticated_by}) {_DID[last.choice]} it"
    return ApprovalRefusedError(reason, f"{found.approval_id} is {found.state.value} already{who}", last)


_DID = {Choice.APPROVE: "approved", Choice.DENY: "denied", Choice.WITHDRAW: "withdrew"}


def _closed(found: Approval, state: ApprovalState, decision: Decision | None = None) -> Approval:
    decisions = found.decisions if decision is None else (*found.decisions, decision)
    return replace(
        found,
        state=state,
        arguments_json="",
        asked_json="",
        decisions=tuple(replace(each, edited_json="") for each in decisions),
    )


def _standing(found: Approval) -> list[Decision]:
    """Approvals of what is approved now: those from before an edit were given for something else."""
    digest = found.digest
    return [
        each
        for each in found.decisions
        if each.choice is Choice.APPROVE and (each.digest if each.edited is None else each.edited.digest) == digest
    ]


def is_satisfied(found: Approval) -> bool:
    """Whether enough have approved it for each of its requirements."""
    return all(_satisfied(each, found) for each in found.requirements)


def _satisfied(requirement: Requirement, found: Approval) -> bool:
    return len(_counting(requirement, found)) >= requirement.approvals


def _counting(requirement: Requirement, found: Approval) -> Collection[tuple[str, str]]:
    asker = found.asker
    return {
        each.decider
        for each in _standing(found)
        if (not requirement.approvers or each.by in requirement.approvers)
        and (requirement.self_approval or not may_be_same(asker, each.by, each.connection))
    }
