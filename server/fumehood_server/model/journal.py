"""Interface of the journal: where parts of the sidecar record what they do, and find calls again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from fumehood_server.model.events import NOBODY, About, Document, Event
from fumehood_server.model.recorded import RecordedCall

if TYPE_CHECKING:
    from fumehood_server.model.approval_changes import Change
    from fumehood_server.model.forks import Fork
    from fumehood_server.model.standing_changes import StandingChange, UseStanding


class Journal(Protocol):
    """Where parts of the sidecar record what they do, and find calls again."""

    @property
    def recording(self) -> bool:
        """Whether anything is recorded at all."""

    @property
    def shared(self) -> bool:
        """Whether other sidecars record there as well: an id that is new here may be one of their calls'."""

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now. None: it can."""

    @property
    def waiting(self) -> int:
        """Events that are not on disk yet."""

    @property
    def lost(self) -> int:
        """Events dropped so far: see `EventsLost`."""

    def has_room(self, size: int = 0) -> bool:
        """Whether an event whose payload has so many bytes can be recorded now: else it should wait for `room`.

        Large payloads wait earlier than others, so that a caller with small ones does not wait for theirs.
        """

    async def room(self, size: int = 0) -> None:
        """Return once there is, or after some seconds."""

    def record(
        self,
        event: Event,
        about: About = NOBODY,
        payloads: tuple[bytes, ...] = (),
        documents: tuple[Document, ...] = (),
    ) -> None:
        """Have an event on disk within 50 ms. Never waits and never fails.

        Where neither disk nor memory can take it, it is counted: see `EventsLost`.
        """

    async def commit(
        self,
        event: Event,
        about: About = NOBODY,
        payloads: tuple[bytes, ...] = (),
        documents: tuple[Document, ...] = (),
        *,
        lasting: bool = True,
        standing: StandingChange | None = None,
    ) -> None:
        """Have an event on disk now, after all that were recorded before.

        `lasting` False: have it where a kill of this process can't take it back now, and on disk within 50 ms.
        `standing`: what it says of a standing approval, in the same transaction.

        Raises:
            JournalUnavailableError: it could not be put there in time. It may be there all the same.
            CallTakenError: the call's id is that of another sidecar's call, or another one has settled the call.
            QuotaExceededError: a quota has not as much left as the call takes. Nothing was recorded.
            ApprovalRefusedError: `standing` may not follow. Nothing was recorded.
        """

    async def commit_approved(
        self, start: Event, about: About, payloads: tuple[bytes, ...], use: Change | UseStanding, used: Event
    ) -> None:
        """Have a call's start on disk now, and in the same transaction that it has used its approval.

        Raises:
            ApprovalRefusedError: the approval can't be used. Nothing was recorded.
            JournalUnavailableError, CallTakenError, QuotaExceededError: as `commit`.
        """

    @property
    def keeps_interrupted(self) -> bool:
        """Whether a call that may run again is left open for that by a sidecar after this one."""

    async def take_over(self, call: RecordedCall, about: About) -> bool:
        """Go on with an interrupted call: its events are numbered on in `about`. False: it is not to be had now.

        Where several sidecars share the journal, that is on disk when it returns, and no other one goes on with it.

        Raises:
            JournalUnavailableError: it could not be put there in time. It may be there all the same.
        """

    async def find(self, call_id: str) -> RecordedCall | None:
        """The newest call of this id, those that have just ended included.

        Raises:
            JournalUnavailableError: the journal can't be read now.
        """

    def may_know(self, call_id: str) -> bool:
        """Whether `recent` may find a call of this id. False: it would not, and need not read."""

    async def recent(self, call_id: str) -> RecordedCall | None:
        """The newest call of this id, if it began within the time for which an id stands for its call.

        Raises:
            JournalUnavailableError: the journal can't be read now.
        """

    async def fork(self, run_id: str) -> Fork | None:
        """What the record has of a forked run. None: no such fork is recorded.

        Raises:
            JournalUnavailableError: the journal can't be read now.
        """

    async def pins(self) -> Mapping[str, str]:
        """The digest of each plugin as it was pinned last. Empty where nothing can be read."""
