"""The journal as the sidecar uses it: stamps events, has them written, and says whether that works."""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from fumehood_server.errors import CallTakenError, JournalUnavailableError
from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.forks import NotForkableError, read_fork
from fumehood_server.journal.interrupted import InterruptedCalls
from fumehood_server.journal.reads import JournalReads
from fumehood_server.journal.recent_ids import RecentIds, words_of
from fumehood_server.journal.recorded import JournalReader, read_call, read_pins
from fumehood_server.journal.store import Reader, Store, StoreError, UnequalSettingsError
from fumehood_server.journal.writer import Upkeep, Writer, WriterSettings
from fumehood_server.model.approval_changes import Change
from fumehood_server.model.events import (
    NOBODY,
    About,
    Document,
    Event,
    EventsLost,
    ExecuteEnd,
    ExecuteTakenOver,
    SidecarStopped,
)
from fumehood_server.model.forks import Fork
from fumehood_server.model.quotas import QuotaExceededError
from fumehood_server.model.recorded import RecordedCall
from fumehood_server.model.standing_changes import StandingChange, UseStanding
from fumehood_server.model.steady_clock import STEADY_CLOCK

COMMIT_S = 5.0
"""How long a call waits for its intent or outcome to be on disk."""
_RETRY_S = 5.0
"""Between two tries to read the ids of recorded calls."""
_KEPT = (ExecuteEnd, SidecarStopped)
"""Events that are kept up to the higher bound: there is one at most for each that was taken."""
_MICROSECONDS = 1_000


class StoredJournal:
    """A journal in a database. An async context manager; for one event loop.

    Where the database is slower than the calls, they wait for it. Where it can't be written, events wait in memory,
    within bounds; what waits for its event is refused. Above the bounds events are dropped and counted, and the count
    is the next event once the database works again: so an operator who has calls go on meanwhile finds how many are
    missing.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        open_reader: Callable[[], Reader],
        *,
        sidecar: str,
        on_state: Callable[[str | None], None],
        window_s: float,
        upkeep: Upkeep | None = None,
        reads: JournalReads | None = None,
        settings: WriterSettings | None = None,
        commit_s: float = COMMIT_S,
        on_closed: Callable[[], None] | None = None,
        interrupted: InterruptedCalls | None = None,
        shared: bool = False,
    ) -> None:
        """`sidecar` names this process in each event. `on_state` is told why nothing can be written; None: it can.

        `window_s`: how long a call's id stands for that call. `on_closed` is called in a thread at the end. `reads` is
        told of commits, and closed with the journal. `interrupted`: what recovery leaves open. None: nothing. `shared`:
        see `fumehood_server.model.journal.Journal`.
        """
        self.shared = shared
        self.reads = reads
        self._open_store = open_store
        self._open_reader = open_reader
        self._reader = JournalReader(open_reader)
        self._sidecar = sidecar
        self._commit_s = commit_s
        self.window_s = window_s
        self._on_closed = on_closed
        self._interrupted = interrupted
        self._recent = RecentIds(window_s)
        self._loading: asyncio.Task[None] | None = None
        self._first: Store | None = None
        self._writer = Writer(
            self._store,
            settings=settings,
            on_state=on_state,
            upkeep=upkeep,
            on_committed=None if reads is None else reads.commits.committed,
        )
        self._last_us = 0
        self._lost = 0
        self.lost = 0
        """See `fumehood_server.model.journal.Journal`."""

    async def __aenter__(self) -> Self:
        """Open the database; where it can't be, go on trying.

        Raises:
            NewerJournalError: this sidecar would misread what is there.
            UnequalSettingsError: another one that writes there goes by other settings.
        """
        try:
            self._first = await asyncio.to_thread(self._open_store)
            # Events are found by their times: they must not fall where the clock was set back between two sidecars.
            self._last_us = await self._reader.run(lambda reader: reader.least_time_us())
            STEADY_CLOCK.hold_up(self._last_us)
        except UnequalSettingsError:
            raise
        except StoreError as exc:
            self._writer.begins_with(str(exc))
        await self._writer.__aenter__()
        self._loading = asyncio.create_task(self._load_recent(self._window_start_us()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait((self._loading,))
        self._tell_losses()
        await self._writer.__aexit__(kind, value, trace)
        await asyncio.to_thread(self._reader.close)
        if self._on_closed is not None:
            await asyncio.to_thread(self._on_closed)
        if self.reads is not None:
            await asyncio.to_thread(self.reads.close)

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now. None: it can."""
        return self._writer.problem

    @property
    def waiting(self) -> int:
        """See `fumehood_server.model.journal.Journal`."""
        return self._writer.waiting

    def has_room(self, size: int = 0) -> bool:
        """See `fumehood_server.model.journal.Journal`."""
        return self._writer.has_room(size)

    async def room(self, size: int = 0) -> None:
        """See `fumehood_server.model.journal.Journal`."""
        if not self._writer.has_room(size):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._commit_s):
                    await self._writer.room(size)

    def record(
        self,
        event: Event,
        about: About = NOBODY,
        payloads: tuple[bytes, ...] = (),
        documents: tuple[Document, ...] = (),
    ) -> None:
        """See `fumehood_server.model.journal.Journal`."""
        if self._writer.is_full and (self._writer.is_overfull or not isinstance(event, _KEPT)):
            self._lost += 1
            self.lost += 1
            return
        if self._lost:
            self._tell_losses()
        self._writer.add(self.entry(event, about, payloads, documents))

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
        """See `fumehood_server.model.journal.Journal`."""
        await self.room(sum(map(len, payloads)))
        if self._writer.is_full:
            raise JournalUnavailableError(self.problem or "more events wait than the journal can take")
        entry = self.entry(event, about, payloads, documents)
        entry.standing = standing
        await self._written(entry, lasting=lasting)
        if entry.refusal is not None:
            raise entry.refusal
        if entry.exceeded is not None:
            raise QuotaExceededError(entry.exceeded)
        if entry.refused:
            raise CallTakenError(entry.refused)

    async def commit_entries(self, entries: Sequence[Entry]) -> None:
        """Have entries of `entry` on disk now, in one transaction. What was refused says so.

        Raises:
            JournalUnavailableError: as `commit`.
        """
        await self.room(sum(each.size for each in entries))
        if self._writer.is_full:
            raise JournalUnavailableError(self.problem or "more events wait than the journal can take")
        await self._written(*entries)

    async def commit_approved(
        self, start: Event, about: About, payloads: tuple[bytes, ...], use: Change | UseStanding, used: Event
    ) -> None:
        """See `fumehood_server.model.journal.Journal`."""
        first = self.entry(start, about, payloads)
        if isinstance(use, UseStanding):
            first.standing = use
        else:
            first.approval = use
        second = self.entry(used, about)
        second.requires = first
        await self.commit_entries([first, second])
        if first.refusal is not None:
            raise first.refusal
        if first.exceeded is not None:
            raise QuotaExceededError(first.exceeded)
        if first.refused:
            raise CallTakenError(first.refused)

    async def _written(self, *entries: Entry, lasting: bool = True) -> None:
        done = self._writer.commit(*entries, lasting=lasting)
        try:
            async with asyncio.timeout(self._commit_s):
                await done
        except TimeoutError as exc:
            problem = self.problem or f"nothing was written for {self._commit_s:g} s"
            raise JournalUnavailableError(problem) from exc

    @property
    def recording(self) -> bool:
        """See `fumehood_server.model.journal.Journal`."""
        return True

    async def find(self, call_id: str) -> RecordedCall | None:
        """See `fumehood_server.model.journal.Journal`."""
        try:
            async with asyncio.timeout(self._commit_s):
                if self._writer.holds(call_id):
                    await self._writer.flush()
                found = await self._reader.run(lambda reader: read_call(reader, call_id))
        except TimeoutError as exc:
            raise JournalUnavailableError(self.problem or f"nothing was read for {self._commit_s:g} s") from exc
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc
        return found if found is None or self._interrupted is None else self._interrupted.marked(found)

    @property
    def keeps_interrupted(self) -> bool:
        """See `fumehood_server.model.journal.Journal`."""
        return self._interrupted is not None

    async def take_over(self, call: RecordedCall, about: About) -> bool:
        """See `fumehood_server.model.journal.Journal`."""
        # Of those in this sidecar only the first asks the database; recovery finds the call again if it is still left.
        if self._interrupted is None or not self._interrupted.take(call.call_id):
            return False
        if self.shared:
            try:
                await self.commit(ExecuteTakenOver(from_sidecar=call.sidecar), about)
            except CallTakenError:
                return False
            self._recent.add(call.call_id)
        return True

    def may_know(self, call_id: str) -> bool:
        """See `fumehood_server.model.journal.Journal`."""
        return self._recent.may_hold(call_id)

    async def recent(self, call_id: str) -> RecordedCall | None:
        """See `fumehood_server.model.journal.Journal`."""
        if not self.may_know(call_id):
            return None
        found = await self.find(call_id)
        if found is None or found.started_us < self._window_start_us():
            return None
        return found

    async def _load_recent(self, since_us: int) -> None:
        """Read the ids that earlier sidecars recorded within the window. Until that is done every id is looked up."""
        while True:
            try:
                self._recent.load(await asyncio.to_thread(self._read_recent, since_us))
            except StoreError:  # said by the writer
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _window_start_us(self) -> int:
        return time.time_ns() // _MICROSECONDS - round(self.window_s * 1e6)

    def _read_recent(self, since_us: int) -> array[int]:
        with contextlib.closing(self._open_reader()) as reader:
            return words_of(reader.call_ids(since_us))

    async def fork(self, run_id: str) -> Fork | None:
        """See `fumehood_server.model.journal.Journal`."""
        try:
            return await read_fork(self.reads or self._reader, run_id)
        except NotForkableError:
            return None
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc

    async def pins(self) -> Mapping[str, str]:
        """See `fumehood_server.model.journal.Journal`."""
        try:
            async with asyncio.timeout(self._commit_s):
                return await self._reader.run(read_pins)
        except (TimeoutError, StoreError):
            return {}

    def _tell_losses(self) -> None:
        lost, self._lost = self._lost, 0
        if lost:
            self._writer.add(self.entry(EventsLost(count=lost, reason=self.problem or "too many at once"), NOBODY))

    def entry(
        self, event: Event, about: About, payloads: tuple[bytes, ...] = (), documents: tuple[Document, ...] = ()
    ) -> Entry:
        """What is written for an event, which is to be handed over at once: it is stamped."""
        # Events are found by time as well, and what expires goes by it: it never falls, nor stands still.
        self._last_us = max(self._last_us, STEADY_CLOCK.now_us())
        if about.call_id and about.numbered:
            if not about.number:
                self._recent.add(about.call_id)
            about.number += 1
        return encode(
            event,
            about,
            time_us=self._last_us,
            sidecar=self._sidecar,
            number=about.number,
            payloads=payloads,
            documents=documents,
        )

    def _store(self) -> Store:
        first, self._first = self._first, None
        return first or self._open_store()
