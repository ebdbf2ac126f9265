"""What the desk asks of the journal and of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fumehood_server.model.approval_changes import Change
from fumehood_server.model.approvals import Approval, Subject
from fumehood_server.model.events import About, Event
from fumehood_server.model.policy import Requirement
from fumehood_server.model.standing import Standing, UsedStanding
from fumehood_server.model.standing_changes import StandingChange


class ApprovalJournal(Protocol):
    """Where approvals lie. Every method may raise `JournalUnavailableError`."""

    shared: bool
    """Whether other sidecars change them as well."""
    window_us: int
    """How long a call's id stands for that call."""

    async def change(
        self,
        change: Change,
        event: Event,
        about: About,
        payloads: tuple[bytes, ...] = (),
        *,
        granted: Standing | None = None,
    ) -> Approval:
        """Record an event, and what it says of an approval, now; and in the same transaction a standing one.

        Raises:
            ApprovalRefusedError: the approval can't be changed so.
        """

    async def find(self, approval_id: str) -> Approval | None:
        """One of them."""

    async def of_call(self, call_id: str) -> Approval | None:
        """The newest of a call."""

    async def open(self, after: int, *, limit: int) -> tuple[int, Sequence[Approval]]:
        """The first open ones whose last change is after a position, and the position of the last of them."""

    async def changed(self, after: int, *, limit: int) -> tuple[int, Sequence[Approval]]:
        """Those that were changed after a position, and the position up to which that is."""

    async def size(self) -> int:
        """How many events there are."""


class StandingJournal(Protocol):
    """Where standing approvals lie. Every method may raise `JournalUnavailableError`."""

    async def change(self, change: StandingChange, event: Event, about: About) -> Standing:
        """Record an event, and what it says of one, now.

        Raises:
            ApprovalRefusedError: it can't be changed so.
        """

    async def find(self, standing_id: str) -> Standing | None:
        """One of them."""

    async def some(
        self, *, binding: str = "", open_at_us: int | None = None, after: str = "", limit: int
    ) -> Sequence[Standing]:
        """The first after an id, in the order of ids, of a binding if one is given.

        `open_at_us`: those alone that could be used then.
        """

    async def of_call(self, call_id: str) -> UsedStanding | None:
        """See `fumehood_server.model.standing.StandingApprovals`."""


class EditedApproval(Protocol):
    """What is approved in place of what was asked for, where an approver changes the arguments."""

    @property
    def subject(self) -> Subject:
        """What is bound to then."""

    @property
    def arguments_json(self) -> str:
        """As they may be shown."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Of the rules that ask for an approval of it. Empty: those of before stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings:
    """`[approvals]`."""

    decide_within_s: float
    use_within_s: float
    max_open: int
    standing_max_s: float
