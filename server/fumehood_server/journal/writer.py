"""The journal's one writer: a thread that commits what the event loop hands it, in groups.

An entry is committed within 50 ms, or at once where somebody waits for it; all that came meanwhile goes with it. When
the database fails, what was handed over is kept, in order and bounded, and tried again until it is written: an entry
is never skipped while those after it are written.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from fumehood_server.journal.entry import Entry
from fumehood_server.journal.store import Store, StoreError

GROUP_S = 0.05
"""The longest that an entry lies before its commit begins."""
RETRY_S = 0.5
"""Between two tries of a database that failed."""
UPKEEP_S = 1.0
BATCH_ENTRIES = 2_048
BATCH_BYTES = 2 * 1024 * 1024
SMALL_BYTES = 64 * 1024
"""Payloads up to this don't wait for larger ones."""
_FOR_SMALL, _FOR_ENDS = 4, 4


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Bounds of what waits for the database.

    `max_bytes` is for large payloads; small ones may make it four times as much, ends of calls eight times.
    """

    max_entries: int = 16_384
    max_bytes: int = 8 * 1024 * 1024
    group_s: float = GROUP_S
    retry_s: float = RETRY_S
    upkeep_s: float = UPKEEP_S


@dataclass(slots=True)
class _Batch:
    entries: list[Entry] = field(default_factory=list)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    subjects: set[str] = field(default_factory=set)
    """What its entries are about."""
    size: int = 0
    is_lasting: bool = False
    """Whether it outlives the machine's failure as well as this process's."""

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to write, or somebody to tell that it is written."""
        return bool(self.entries or self.waiters or self.is_lasting)


OnState = Callable[[str | None], None]
"""Told on the event loop that the database failed, with the reason, or that it works again, with None."""
OnCommitted = Callable[[int], None]
"""Called in the writer's thread after each commit, with the journal's size. Must neither block nor raise."""
Upkeep = Callable[[Store], float | None]
"""Called in the writer's thread at most once a second, when something was written since the last time, and at the end.
It returns in how many seconds it is to be called though nothing is written; None: not before.
May raise `StoreError`."""


class Writer:
    """Hands entries from one event loop to the thread. An async context manager: leaving it writes what is left."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        settings: WriterSettings | None = None,
        on_state: OnState | None = None,
        upkeep: Upkeep | None = None,
        on_committed: OnCommitted | None = None,
    ) -> None:
        """`open_store` is called in the thread, and again after a failure."""
        self._open_store = open_store
        self._on_committed = on_committed
        self._settings = settings or WriterSettings()
        self._on_state = on_state
        self._upkeep = upkeep
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._batch = _Batch()
        self._under_way = _Batch()
        """The one that the thread writes, or wrote last."""
        self._waiting = 0
        """Entries and their bytes that are not on disk, those of the batch under way included."""
        self._waiting_bytes = 0
        self._unsynced = False
        """Whether the database has what a failure of the machine may take back."""
        self._for_room: list[tuple[int, asyncio.Future[None]]] = []
        self._due = False
        """Whether the group is to be written now."""
        self._timer: asyncio.TimerHandle | None = None
        """The event loop's, for a group that nobody waits for: so the thread is woken once for each."""
        self._closing = False
        self._problem: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    def begins_with(self, problem: str) -> None:
        """Say before the start that the database could not be opened."""
        self._problem = problem
        if self._on_state is not None:
            self._on_state(problem)

    async def __aexit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Write what is left, unless the database refuses it, and end the thread."""
        if self._timer is not None:
            self._timer.cancel()
        with self._condition:
            self._closing = True
            self._condition.notify()
        await asyncio.to_thread(self._thread.join)

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now. None: it can."""
        return self._problem

    def has_room(self, size: int) -> bool:
        """Whether an event with a payload of so many bytes may be added now, or should wait for `room`."""
        return self._holds_less(1, 1 if size > SMALL_BYTES else _FOR_SMALL)

    @property
    def waiting(self) -> int:
        """Entries that are not on disk yet."""
        return self._waiting

    @property
    def is_full(self) -> bool:
        """Whether what waits has reached its bound also for small payloads: nothing more should be added."""
        return not self._holds_less(1, _FOR_SMALL)

    @property
    def is_overfull(self) -> bool:
        """Whether not even the ends of calls should be added."""
        return not self._holds_less(_FOR_ENDS, 2 * _FOR_SMALL)

    def _holds_less(self, entries: int, sizes: int) -> bool:
        """Than so many times the bounds."""
        settings = self._settings
        return self._waiting < settings.max_entries * entries and self._waiting_bytes < settings.max_bytes * sizes

    async def room(self, size: int) -> None:
        """Return once there is room for such a payload, or the database has failed: see `problem`.

        One after the other, in the order in which they came: all at once they would take the event loop's time.
        """
        loop = asyncio.get_running_loop()
        while self._problem is None:
            with self._condition:
                if self.has_room(size):
                    return
                free = loop.create_future()
                self._for_room.append((size, free))
            try:
                await free
            finally:
                loop.call_soon(self._wake_next)  # once this one has added what it waited with

    def _tell_written(self, waiters: list[asyncio.Future[None]]) -> None:
        for each in waiters:
            if not each.done():
                each.set_result(None)
        self._wake_next()

    def _wake_next(self) -> None:
        """Let the first go on for whom there is room. On the event loop."""
        for place, (size, free) in enumerate(self._for_room):
            if free.done() or self._problem is not None or self.has_room(size):
                del self._for_room[place]
                if free.done():  # it was cancelled
                    self._wake_next()
                else:
                    free.set_result(None)
                return

    def holds(self, subject: str) -> bool:
        """Whether an entry about this waits to be on disk."""
        with self._lock:
            return subject in self._batch.subjects or subject in self._under_way.subjects

    def add(self, entry: Entry) -> None:
        """Have an entry written with the next group. Never blocks on the database."""
        with self._lock:
            self._add(entry)

    def commit(self, *entries: Entry, lasting: bool = True) -> asyncio.Future[None]:
        """Have entries written now, in one transaction.

        The future is done when they are on disk; it never fails, so wait with a bound. `lasting` False: it is done when
        they outlive this process, and they are on disk with the next group.
        """
        done = asyncio.get_running_loop().create_future()
        with self._condition:
            for entry in entries:
                self._add(entry)
            self._batch.waiters.append(done)
            self._wake(lasting=lasting)
        return done

    async def flush(self) -> None:
        """Return once all that was handed over is on disk."""
        with self._condition:
            if not self._waiting and not self._unsynced:
                return
            done = asyncio.get_running_loop().create_future()
            # Of the next group also where only the one under way holds anything: groups are written in order.
            self._batch.waiters.append(done)
            self._wake()
        await done

    def _add(self, entry: Entry) -> None:
        batch, size = self._batch, entry.size
        batch.entries.append(entry)
        batch.subjects.add(entry.subject)
        batch.size += size
        self._waiting += 1
        self._waiting_bytes += size
        if len(batch.entries) >= BATCH_ENTRIES or batch.size >= BATCH_BYTES:
            self._wake()
        elif self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._settings.group_s, self._group_is_due)

    def _group_is_due(self) -> None:
        self._timer = None
        with self._condition:
            if self._batch.is_wanted or self._unsynced:
                self._wake()

    def _wake(self, *, lasting: bool = True) -> None:
        """Have the thread take the group. Under the lock."""
        self._due = True
        self._batch.is_lasting |= lasting
        self._condition.notify()

    # In the thread.

    def _run(self) -> None:
        store: Store | None = None
        due: float | None = None
        """When upkeep is to be done. None: nothing was written since the last time."""
        while (batch := self._take(due)) is not None:
            try:
                store = store or self._open_store()
                if batch.entries:
                    self._write(store, batch)
                    if self._upkeep is not None:
                        due = min(due or math.inf, time.monotonic() + self._settings.upkeep_s)
                elif batch.is_lasting:
                    self._sync(store)
                self._written(batch)
                if self._upkeep is not None and due is not None and (self._has_ended or time.monotonic() >= due):
                    self._sync(store)  # what is signed must not be taken back
                    again_s = self._upkeep(store)
                    due = None if again_s is None or self._has_ended else time.monotonic() + again_s
            except Exception as exc:  # noqa: BLE001 - a fault of ours must not end the thread, or go unsaid
                self._tell(str(exc) if isinstance(exc, StoreError) else f"its writer failed: {exc!r}")
                if store is not None:
                    store.close()
                store = None
                if not self._put_back(batch):
                    return
                continue
            self._tell(None)
        if store is not None:
            store.close()

    def _write(self, store: Store, batch: _Batch) -> None:
        if batch.is_lasting or self._closing:
            size = store.write(batch.entries)
            self._unsynced = False
        else:
            size = store.write_unsynced(batch.entries)
        if self._on_committed is not None:
            self._on_committed(size)

    def _sync(self, store: Store) -> None:
        if self._unsynced:
            store.sync()
            self._unsynced = False

    def _take(self, due: float | None) -> _Batch | None:
        """The next group; an empty one when upkeep is due first. None: there is none and there will be none."""
        with self._condition:
            while not self._due and not self._closing:
                if not self._condition.wait(None if due is None else max(due - time.monotonic(), 0)):
                    return _Batch()
            self._due = False
            if not self._batch.is_wanted:
                return None if due is None and not self._unsynced else _Batch(is_lasting=True)
            self._under_way, self._batch = self._batch, _Batch()
            self._unsynced |= not self._under_way.is_lasting
            return self._under_way

    def _put_back(self, batch: _Batch) -> bool:
        """Keep what could not be written for the next try, and wait for that. False: the sidecar ends."""
        with self._condition:
            later = self._batch
            batch.entries += later.entries
            batch.waiters += later.waiters
            batch.subjects |= later.subjects
            batch.size += later.size
            batch.is_lasting |= later.is_lasting
            self._batch = batch
            if self._closing:
                return False
            self._condition.wait_for(lambda: self._closing, self._settings.retry_s)
            self._due = True
            return True

    @property
    def _has_ended(self) -> bool:
        """Whether the sidecar ends and nothing is left to be written."""
        with self._condition:
            return self._closing and not self._batch.entries

    def _written(self, batch: _Batch) -> None:
        with self._lock:
            self._waiting -= len(batch.entries)
            self._waiting_bytes -= batch.size
            waiters = batch.waiters
            is_awaited = waiters or self._for_room
            # What fails after this is not theirs; and who is told asks nobody to wait for it any more.
            batch.entries, batch.waiters, batch.subjects, batch.size = [], [], set(), 0
        if is_awaited:
            self._on_loop(self._tell_written, waiters)

    def _tell(self, problem: str | None) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        if self._on_state is not None:
            self._on_loop(self._on_state, problem)
        self._on_loop(self._wake_next)

    def _on_loop(self, call: Callable[..., None], *values: object) -> None:
        if self._loop is None:
            raise AssertionError("the thread starts once it is known")
        try:
            self._loop.call_soon_threadsafe(call, *values)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return
