"""Token bucket for events of the journal: what comes faster is counted, and the count is recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from fumehood_server.model.events import NOBODY, About, Event
from fumehood_server.model.journal import Journal
from fumehood_server.token_bucket import TokenBucket

COUNTED_S = 60.0
"""How long events are counted before the count is recorded."""

CountEvent = Callable[[int, int], Event]
"""Makes the event of a count: how many, and since when, in microseconds of POSIX time."""


class BoundedEvents:
    """Bounds events of one kind. For one event loop."""

    __slots__ = ("_about", "_allowance", "_count", "_journal", "_make", "_since_us", "_timer")

    def __init__(
        self, journal: Journal, make: CountEvent, *, burst: int, per_second: float, about: About = NOBODY
    ) -> None:
        """`burst` events are let through at once, and `per_second` over time."""
        self._journal = journal
        self._make = make
        self._about = about
        self._allowance = TokenBucket(burst=burst, per_second=per_second, clock=asyncio.get_running_loop().time)
        self._count = self._since_us = 0
        self._timer: asyncio.TimerHandle | None = None

    def takes(self) -> bool:
        """Whether one more is to be recorded by itself. Counts it otherwise."""
        if self._allowance.take():
            return True
        if self._timer is None:
            self._since_us = time.time_ns() // 1000
            self._timer = asyncio.get_running_loop().call_later(COUNTED_S, self.close)
        self._count += 1
        return False

    def close(self) -> None:
        """Record what is counted. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            event, self._count = self._make(self._count, self._since_us), 0
            self._journal.record(event, self._about)
