"""Looks for the answer of a call that is alone, for a moment, in place of falling asleep over it.

An event loop that sleeps is woken by the kernel, and so is the processor it sleeps on: 30 to 50 microseconds, where a
small tool takes as long itself. Who calls one tool after another pays that each time. Only such callers are attended
to, and only while answers do come within the moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_S = 0.000_25
"""Twice what a small tool takes to be woken, to run and to answer. The event loop does nothing else meanwhile."""
MOST_SKIPPED = 1024
"""Calls that aren't attended to after many in a row that took longer. Doubled with each, from one."""


class Attention:
    """One worker's. Costs a comparison a call where nothing is looked for."""

    __slots__ = ("_look", "_misses", "_skip")

    def __init__(self, look: Callable[[], bool]) -> None:
        """`look` hands on what has come, and says whether there was something."""
        self._look = look
        self._misses = 0
        self._skip = 0

    def is_due(self) -> bool:
        """Whether `pay` should be called, once the lone call that is sent now has been taken care of."""
        if self._skip:
            self._skip -= 1
            return False
        return True

    def pay(self) -> None:
        """Look until there is something, for `LOOK_S` at most."""
        look, clock = self._look, time.monotonic
        until = clock() + LOOK_S
        while not look():
            if clock() > until:
                self._misses = min(self._misses + 1, MOST_SKIPPED.bit_length())
                self._skip = min(1 << self._misses, MOST_SKIPPED)
                return
        self._misses = 0
