"""Looks for the answer of a call that is alone, for a moment, in place of falling asleep over it.

An event loop that sleeps is woken by the kernel, and so is the processor it sleeps on: 30 to 50 microseconds, where a
small tool takes as long itself. Who calls one tool after another pays that each time. Only such callers are attended
to, only while answers do come within the moment, and only where there is another processor for the tool.

A call that is alone in its worker isn't alone for that: where many are under way, a quick worker has answered each
before the next one is read. A caller who had to have the answer first shows in the rest between the two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

LOOK_S = 0.000_1
"""As long as a small tool takes to be woken, to run and to answer. The event loop does nothing else meanwhile."""
REST_S = 0.000_1
"""From an answer to the next call, at least, if the caller waited for the one before it made the other."""
FEWEST_LONE_CALLS = 8
"""Calls one after another, each alone in its worker and after a rest, before the next one is attended to."""
MOST_SKIPPED = 1024
"""Calls that aren't attended to after many in a row that took longer. Doubled with each, from one."""
_PROCESSORS = len(os.sched_getaffinity(0))


class Attention:
    """One worker's. Costs a comparison a call where nothing is looked for."""

    __slots__ = ("_lone", "_look", "_misses", "_skip", "answered_at")

    def __init__(self, look: Callable[[], bool]) -> None:
        """`look` hands on what has come, and says whether there was something."""
        self._look = look
        self._lone = 0
        self._misses = 0
        self._skip = 0
        self.answered_at = 0.0
        """When the last answer came, on `time.monotonic`."""

    def is_due(self, *, alone: bool) -> bool:
        """Whether `pay` should be called, once the call that is sent now has been taken care of."""
        if not alone or time.monotonic() - self.answered_at < REST_S:
            self._lone = 0
            return False
        self._lone += 1
        if self._lone <= FEWEST_LONE_CALLS or _PROCESSORS == 1:
            return False
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
