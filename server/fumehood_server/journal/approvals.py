"""Approvals in the journal, for who asks for them and decides: read and changed beside the events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fumehood_server.errors import JournalUnavailableError
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.store import StoreError
from fumehood_server.model.approval_changes import Change
from fumehood_server.model.approvals import Approval
from fumehood_server.model.events import About, Event
from fumehood_server.model.standing import Standing
from fumehood_server.model.standing_changes import Grant
from fumehood_server.model.standing_events import granted_event

if TYPE_CHECKING:
    from fumehood_server.journal.journal import StoredJournal

MAX_BYTES = 2 * 1024 * 1024
"""Of one read, or one approval where that is more. Arguments may be 1 MiB each."""


class ApprovalRecords:
    """Approvals for who asks for them and decides. See `fumehood_server.policy.interfaces.ApprovalJournal`."""

    def __init__(self, journal: StoredJournal, reads: JournalReads) -> None:
        """`reads` is the journal's own."""
        self._journal = journal
        self._reads = reads
        self.shared = journal.shared
        self.window_us = round(journal.window_s * 1e6)

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
            JournalUnavailableError: it could not be recorded in time.
        """
        entry = self._journal.entry(event, about, payloads)
        entry.approval = change
        entries = [entry]
        if granted is not None:
            second = self._journal.entry(granted_event(granted), about)
            second.requires, second.standing = entry, Grant(granted)
            entries.append(second)
        await self._journal.commit_entries(entries)
        if entry.refusal is not None:
            raise entry.refusal
        if entry.settled is None:
            raise AssertionError("what is appended has settled its approval")
        return entry.settled

    async def find(self, approval_id: str) -> Approval | None:
        """One. Raises JournalUnavailableError."""
        return next(iter(await self._read(approval_id=approval_id, limit=1)), None)

    async def of_call(self, call_id: str) -> Approval | None:
        """The newest of a call. Raises JournalUnavailableError."""
        return next(iter(await self._read(call_id=call_id, limit=1)), None)

    async def open(self, after: int, *, limit: int) -> tuple[int, Sequence[Approval]]:
        """The first open ones whose last change is after a position, and the position of the last of them."""
        return await self._after(after, is_open=True, limit=limit)

    async def changed(self, after: int, *, limit: int) -> tuple[int, Sequence[Approval]]:
        """The first that were changed after a position, and the position of the last of them."""
        return await self._after(after, is_open=False, limit=limit)

    async def _after(self, after: int, *, is_open: bool, limit: int) -> tuple[int, Sequence[Approval]]:
        try:
            found = await self._reads.run(
                lambda reader: reader.approvals(after=after, is_open=is_open, limit=limit, max_bytes=MAX_BYTES)
            )
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc
        return max([after, *(position for position, _ in found)]), [Approval.from_json(data) for _, data in found]

    async def size(self) -> int:
        """How many events there are. Raises JournalUnavailableError."""
        try:
            return await self._reads.run(lambda reader: reader.size())
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc

    async def _read(self, *, approval_id: str = "", call_id: str = "", limit: int) -> list[Approval]:
        try:
            found = await self._reads.run(
                lambda reader: reader.approvals(
                    approval_id=approval_id, call_id=call_id, limit=limit, max_bytes=MAX_BYTES
                )
            )
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc
        return [Approval.from_json(data) for _, data in found]
