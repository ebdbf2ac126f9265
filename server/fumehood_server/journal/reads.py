"""Reads of the journal beside the writer: threads with a read-only connection each, and who waits for commits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fumehood_evidence.note import Verifier

from fumehood_server.journal.place import Place
from fumehood_server.journal.store import Reader, StoreError

POLL_S = 0.2
"""Between two looks for what other sidecars have committed, while somebody waits for that."""
THREADS = 2
"""For what calls, approvals and runs wait for. What waits for one waits in a queue, which the bounds of who asks keep
short."""
IDLE_S = 0.05
"""A connection that was not used for so long is tried first: a database that was started anew has closed it."""

_Value = TypeVar("_Value")


class JournalReads:
    """For one event loop. `close` it."""

    def __init__(self, place: Place, keys: Callable[[], Sequence[Verifier]]) -> None:
        """`place` is opened on a thread of the pool, at its first need and after a failure.

        `keys` gives the public keys that have signed checkpoints here.
        """
        self.keys = keys
        self.place = place
        self.commits = Commits()
        self._looked_at = 0.0
        self._own = threading.local()
        self._readers: set[Reader] = set()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="journal-reads")
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="journal-searches")

    async def run(self, read: Callable[[Reader], _Value]) -> _Value:
        """What `read` returns, on a thread. It must be short: calls, approvals and runs wait for these threads.

        Raises:
            StoreError: the journal can't be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, read)

    async def search(self, read: Callable[[Reader], _Value]) -> _Value:
        """The same for what looks through a stretch of the journal: on a thread that no call waits for.

        It must be bounded: nobody interrupts it. Raises as `run`.
        """
        return await asyncio.get_running_loop().run_in_executor(self._searches, self._run, read)

    async def beyond(self, position: int) -> int:
        """Return the journal's size once an event of this position is committed, by whichever sidecar.

        Raises:
            StoreError: another sidecar may have, and the journal can't be read.
        """
        if not self.place.shared:
            await self.commits.beyond(position)
        while self.commits.size <= position:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self.commits.beyond(position)
            now = time.monotonic()
            if self.commits.size <= position and now - self._looked_at >= POLL_S:  # one look for all who wait
                self._looked_at = now
                self.commits.committed(await self.run(lambda reader: reader.size()))
        return self.commits.size

    def close(self) -> None:
        """Wait for what is being read, and let go of the connections. Blocks."""
        for threads in (self._threads, self._searches):
            threads.shutdown(cancel_futures=True)
        for reader in self._readers:
            reader.close()

    def _run(self, read: Callable[[Reader], _Value]) -> _Value:
        reader = self._usable_reader()
        try:
            return read(reader)
        except BaseException:
            self._let_go(reader)
            raise
        finally:
            self._own.used_at = time.monotonic()

    def _usable_reader(self) -> Reader:
        """The thread's own, or a new one in its place."""
        reader: Reader | None = getattr(self._own, "reader", None)
        if reader is not None and time.monotonic() - self._own.used_at > IDLE_S:
            try:
                reader.size()
            except StoreError:
                self._let_go(reader)
                reader = None
        if reader is None:
            reader = self._own.reader = self.place.open_reader()
            self._readers.add(reader)
        return reader

    def _let_go(self, reader: Reader) -> None:
        self._own.reader = None
        self._readers.discard(reader)
        reader.close()


class Commits:
    """How far the journal is committed: told by the writer's thread, waited for on one event loop."""

    def __init__(self) -> None:
        """Of a journal of which nothing was written yet since the start."""
        self.size = 0
        """Events that were on disk after the last commit. 0: there was none."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of who waits. None: nobody does."""

    def committed(self, size: int) -> None:
        """Called on the writer's thread, and by who has looked."""
        self.size = max(self.size, size)
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._wake)

    async def beyond(self, position: int) -> None:
        """Return once an event of this position is committed."""
        while self.size <= position:
            self._loop = asyncio.get_running_loop()
            future = self._loop.create_future()
            self._waiting.add(future)
            try:
                if self.size <= position:  # else it was committed before anybody could know of this one
                    await future
            finally:
                self._waiting.discard(future)
                if not self._waiting:
                    self._loop = None

    def _wake(self) -> None:
        for each in self._waiting:
            if not each.done():
                each.set_result(None)
