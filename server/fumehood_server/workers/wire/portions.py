"""Round-robin scheduler for what plugins have sent in bulk: one portion of it, whoever sent it, in each loop iteration.

A bound for each process alone adds up: a loop that served 64 frames of each of forty processes had everybody else wait
for all of them, in each of the ten iterations that a call takes.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable

PORTION_S = 0.00015
"""So long is served in one iteration, and one item at least."""

PORTION_ITEMS = 64
"""So many items are served in one iteration at most: a bound for cheap ones that doesn't depend on the clock."""

Turn = Callable[[], bool]
"""Serves one item, which must be short. Returns whether there are more."""


class Portions:
    """Those who have more than one iteration should serve, each with one item in turn. For one event loop."""

    __slots__ = ("_loop", "_scheduled", "_turns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use `portions`."""
        self._loop = weakref.ref(loop)
        self._turns: deque[Turn] = deque()
        self._scheduled = False

    def add(self, turn: Turn) -> None:
        """Have `turn` called, from the next iteration on, until it returns False. It must not raise."""
        self._turns.append(turn)
        self._schedule()

    def _schedule(self) -> None:
        loop = self._loop()
        if not self._scheduled and self._turns and loop is not None:
            loop.call_soon(self._serve)
            self._scheduled = True

    def _serve(self) -> None:
        turns, end, left = self._turns, time.monotonic() + PORTION_S, PORTION_ITEMS
        self._scheduled = False
        try:
            while turns and left:
                turn = turns.popleft()
                if turn():
                    turns.append(turn)
                left -= 1
                if time.monotonic() >= end:
                    break
        finally:
            self._schedule()


_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Portions] = weakref.WeakKeyDictionary()


def portions() -> Portions:
    """The one of the running loop."""
    loop = asyncio.get_running_loop()
    found = _of_loop.get(loop)
    if found is None:
        found = _of_loop[loop] = Portions(loop)
    return found
