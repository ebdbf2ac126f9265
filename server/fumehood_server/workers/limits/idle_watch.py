"""Watches a worker between calls: what a call left running may not use a processor for as long as nobody calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_server.workers.limits.watchdog import INTERVAL_S
from fumehood_server.workers.process.nobody import nobody

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.workers.limits.meter import Meter

IDLE_ALLOWANCE_S = 5.0
"""Processor time that a worker may use from one call to the next; half of what one call may, where that is less.
Tidying up takes milliseconds, and a thread that wakes up now and then far less until an idle worker is ended anyway."""
LONGEST_INTERVAL_S = 10.0
"""Between two looks at a worker that rests. What begins after a rest is found that much later."""
_BUSY_SHARE = 0.1
"""Who has used this share of the time since the last look is looked at again soon."""
_NS = 1_000_000_000


class IdleWatch:
    """One timer while a worker has no calls, rarer from look to look while it rests. A look is one or two readings."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: SandboxedProcess,
        meter: Meter,
        allowance_s: float,
        *,
        on_look: Callable[[int], None],
        on_used: Callable[[float], None],
    ) -> None:
        """`on_look` is told of the worker's processor time in nanoseconds at each look.

        `on_used` is called once for a worker that has used more than `allowance_s`, with the seconds; it is looked at
        no more then.
        """
        self._loop = loop
        self._process = process
        self._meter = meter
        self._allowance_ns = allowance_s * _NS
        self._on_look = on_look
        self._on_used = on_used
        self._timer: asyncio.TimerHandle | None = None
        self._interval_s = INTERVAL_S
        self._first_ns = 0
        self._last_ns = 0

    def begin(self) -> None:
        """The worker has no calls any more. Not while it is watched."""
        self._interval_s = INTERVAL_S
        self._first_ns = self._last_ns = self._read_ns()
        self._timer = self._loop.call_later(INTERVAL_S, self._look)

    def stop(self) -> bool:
        """Look no more; says whether it did. Idempotent."""
        timer, self._timer = self._timer, None
        if timer is None:
            return False
        timer.cancel()
        return True

    def close(self) -> None:
        """Look no more, for good. Idempotent."""
        self.stop()
        self._on_look = self._on_used = nobody

    def _read_ns(self) -> int:
        if not self._meter.counts_time:
            self._meter.look_at(self._process.pids())  # what was left behind has clocks of its own
        return self._meter.cpu_ns()

    def _look(self) -> None:
        self._timer = None
        now_ns = self._read_ns()
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        used_ns = now_ns - self._first_ns
        if used_ns > self._allowance_ns:
            self._on_used(used_ns / _NS)
            return
        busy = passed_ns > self._interval_s * _NS * _BUSY_SHARE
        self._interval_s = INTERVAL_S if busy else min(self._interval_s * 2, LONGEST_INTERVAL_S)
        # First, since what ends the worker stops this watch.
        self._timer = self._loop.call_later(self._interval_s, self._look)
        self._on_look(now_ns)
