"""First come, first served queue of those who wait for a worker, or for the turn of a tool."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Releasable(Protocol):
    """What is waited for, such as a lease of a worker."""

    def release(self) -> None:
        """Give it back."""


_Lease = TypeVar("_Lease", bound=Releasable)


class WaiterQueue(Generic[_Lease]):
    """A FIFO queue of futures, one for each caller that waits. For one event loop."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Nobody yet."""
        self._waiting: deque[asyncio.Future[_Lease]] = deque()

    def __len__(self) -> int:
        """How many wait. Those who gave up a moment ago may count."""
        return len(self._waiting)

    async def wait(self) -> _Lease:
        """Wait in line. A wait that is cancelled takes nothing.

        Raises:
            Exception: what `fail_all` was given.
        """
        waiting: asyncio.Future[_Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            # It may have been given in the same iteration of the loop in which the caller gave up.
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                waiting.result().release()
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def serve(self, acquire: Callable[[], _Lease | None]) -> None:
        """Give each in turn what `acquire` returns, until it returns None or nobody waits."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            lease = acquire()
            if lease is None:
                return
            self._waiting.popleft().set_result(lease)

    def fail_all(self, make_error: Callable[[], Exception]) -> None:
        """Have the wait of everybody who waits raise an error of their own."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(make_error())
