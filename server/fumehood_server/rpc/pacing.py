"""Pacing of work that comes in bulk: so much begins in one iteration of the event loop, first come first served.

Each line of a log for each of its followers, and each update of each stream, costs a tenth of a millisecond: fifty
streams that are all ready would have everybody else wait for fifty of them, in each of the ten iterations that a call
takes.
"""

from __future__ import annotations

import asyncio
from collections import deque

WRITES_PER_ITERATION = 1

MESSAGES_PER_ITERATION = 1
"""Messages that are taken of all sessions together.

gRPC takes four iterations to hand over the next call of an address, and each message of a session makes one of them
0.3 ms longer: beside six sessions that went on asking, calls came in more slowly than they were made.
"""


class Pacer:
    """Turns to begin a piece of work. Nobody holds one: who waits for a reader keeps nobody's. For one event loop."""

    __slots__ = ("_left", "_per_iteration", "_refills", "_waiting")

    def __init__(self, per_iteration: int) -> None:
        """`per_iteration` turns are had in each iteration."""
        self._per_iteration = self._left = per_iteration
        self._refills = False
        """Whether there are new turns with the next iteration."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Return when it is this task's turn: at once, unless many want one."""
        if self._left and not self._waiting:
            self._take()
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._refill_soon()
        await waiting

    def _take(self) -> None:
        self._left -= 1
        self._refill_soon()

    def _refill_soon(self) -> None:
        if not self._refills:
            asyncio.get_running_loop().call_soon(self._refill)
            self._refills = True

    def _refill(self) -> None:
        self._refills, self._left = False, self._per_iteration
        while self._waiting and self._left:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else who waited was cancelled
                waiting.set_result(None)
                self._take()
