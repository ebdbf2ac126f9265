"""The journal that an operator has switched off: nothing is recorded, and every receipt says so."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from fumehood_server.model.approval_changes import Change
from fumehood_server.model.approvals import ApprovalRefusedError
from fumehood_server.model.events import NOBODY, About, Document, Event
from fumehood_server.model.forks import Fork
from fumehood_server.model.recorded import RecordedCall
from fumehood_server.model.standing_changes import StandingChange, UseStanding


class NoJournal:
    """Records nothing."""

    problem: str | None = None
    recording = False
    shared = False
    reads = None
    keeps_interrupted = False
    waiting = lost = 0

    async def __aenter__(self) -> Self:
        """Nothing to open."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def has_room(self, size: int = 0) -> bool:  # noqa: ARG002 - as in the protocol
        """There is always room for nothing."""
        return True

    async def room(self, size: int = 0) -> None:
        """There is."""

    def record(
        self,
        event: Event,
        about: About = NOBODY,
        payloads: tuple[bytes, ...] = (),
        documents: tuple[Document, ...] = (),
    ) -> None:
        """Nothing is written."""

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
        """Nothing is written."""

    async def commit_approved(
        self,
        start: Event,  # noqa: ARG002 - as in the protocol
        about: About,  # noqa: ARG002 - likewise
        payloads: tuple[bytes, ...],  # noqa: ARG002 - likewise
        use: Change | UseStanding,  # noqa: ARG002 - likewise
        used: Event,  # noqa: ARG002 - likewise
    ) -> None:
        """No approval is kept, so none is used."""
        raise ApprovalRefusedError("not_found", "this sidecar keeps no approvals")

    async def take_over(self, call: RecordedCall, about: About) -> bool:  # noqa: ARG002 - as in the protocol
        """There is none."""
        return False

    async def find(self, call_id: str) -> RecordedCall | None:  # noqa: ARG002 - as in the protocol
        """Nothing is known."""
        return None

    def may_know(self, call_id: str) -> bool:  # noqa: ARG002 - as in the protocol
        """Nothing is known."""
        return False

    async def recent(self, call_id: str) -> RecordedCall | None:  # noqa: ARG002 - as in the protocol
        """Nothing is known."""
        return None

    async def fork(self, run_id: str) -> Fork | None:  # noqa: ARG002 - as in the protocol
        """Nothing is known."""
        return None

    async def pins(self) -> Mapping[str, str]:
        """Nothing is known."""
        return {}


NO_JOURNAL = NoJournal()
