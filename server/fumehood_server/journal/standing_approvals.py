"""Standing approvals in the journal, for calls that look for one, and for who lists and revokes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from fumehood_server.errors import JournalUnavailableError
from fumehood_server.journal.encoding import decode
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.store import Reader, StoreError
from fumehood_server.model.events import About, Event
from fumehood_server.model.standing import Standing, UsedStanding
from fumehood_server.model.standing_changes import StandingChange
from fumehood_server.model.standing_events import StandingUsed

if TYPE_CHECKING:
    from fumehood_server.journal.journal import StoredJournal

_Value = TypeVar("_Value")


class StandingRecords:
    """See `fumehood_server.policy.interfaces.StandingJournal`."""

    def __init__(self, journal: StoredJournal, reads: JournalReads) -> None:
        """`reads` is the journal's own."""
        self._journal = journal
        self._reads = reads

    async def change(self, change: StandingChange, event: Event, about: About) -> Standing:
        """Record an event, and what it says of a standing approval, now.

        Raises:
            ApprovalRefusedError: it can't be changed so.
            JournalUnavailableError: it could not be recorded in time.
        """
        entry = self._journal.entry(event, about)
        entry.standing = change
        await self._journal.commit_entries([entry])
        if entry.refusal is not None:
            raise entry.refusal
        if entry.settled_standing is None:
            raise AssertionError("what is appended has settled its standing approval")
        return entry.settled_standing

    async def find(self, standing_id: str) -> Standing | None:
        """One. Raises JournalUnavailableError."""
        row = await self._run(lambda reader: reader.standing_approval(standing_id))
        return None if row is None else Standing.from_json(row.record)

    async def some(
        self, *, binding: str = "", open_at_us: int | None = None, after: str = "", limit: int
    ) -> Sequence[Standing]:
        """The first after an id, of a binding if one is given. `open_at_us`: those that could be used then."""
        rows = await self._run(
            lambda reader: reader.standing_approvals(binding=binding, open_at_us=open_at_us, after=after, limit=limit)
        )
        return [Standing.from_json(each.record) for each in rows]

    async def of_call(self, call_id: str) -> UsedStanding | None:
        """The one that the newest call of this id has begun with."""
        events = await self._run(lambda reader: reader.events_of_call(call_id))
        for each in events:
            if each.type == StandingUsed.TYPE:
                data = decode(each.body)["data"]
                return UsedStanding(data["standing_id"], data["digest"], each.time_us)
        return None

    async def _run(self, read: Callable[[Reader], _Value]) -> _Value:
        try:
            return await self._reads.run(read)
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc
