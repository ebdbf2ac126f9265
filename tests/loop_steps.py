"""How long a test's own event loop is kept from its turns, by a step of its own or by another thread."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from fumehood_server.app import SWITCH_INTERVAL_S
from fumehood_server.telemetry.loop_watchdog import NOTED_S

TRIES = 20


class LoopSteps:
    """The most processor time that the loop's own thread has spent between two looks, a millisecond apart.

    Of the processor, since the machine has others run as well. Begins at once; `handle.cancel()` ends it.
    """

    def __init__(self) -> None:
        """For the loop that runs."""
        self.longest_s, self.loop = 0.0, asyncio.get_running_loop()
        self._looked(time.thread_time())

    def _looked(self, before_s: float) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - before_s)
        self.handle = self.loop.call_later(0.001, self._looked, now_s)


async def longest_step_s(work: Callable[[], Awaitable[object]]) -> float:
    """The longest step of the loop while it does `work`, by `LoopSteps`. Of some tries the least."""

    async def tried_s() -> float:
        steps = LoopSteps()
        try:
            await work()
        finally:
            steps.handle.cancel()
        return steps.longest_s

    return await least_s(tried_s)


async def held_up_s(work: Callable[[], Awaitable[object]]) -> float:
    """The longest between two looks of the loop, a millisecond apart, while another thread does `work`.

    Only what both the clock and the processor say counts: the time that the loop's own thread waits for a processor
    does not, nor does that in which this process has none. Of some tries the least.
    """

    async def tried_s() -> float:
        working = asyncio.ensure_future(work())
        longest_s, looked, used = 0.0, _run_clock_s(), time.process_time()
        while not working.done():
            await asyncio.sleep(0.001)
            now, now_used = _run_clock_s(), time.process_time()
            longest_s = max(longest_s, min(now - looked, now_used - used))
            looked, used = now, now_used
        await working
        return longest_s

    return await least_s(tried_s)


async def least_s(tried_s: Callable[[], Awaitable[float]]) -> float:
    """The least of some tries, of which the first within `NOTED_S` is the last.

    What is above it by construction is so in each. Others who use the processor make a try longer, never shorter.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        least = await tried_s()
        for _ in range(TRIES - 1):
            if least < NOTED_S:
                break
            least = min(least, await tried_s())
        return least
    finally:
        sys.setswitchinterval(before_s)


def _run_clock_s() -> float:
    """A clock that stands while this thread waits for a processor, where the kernel counts that."""
    try:
        queued_ns = int(Path("/proc/thread-self/schedstat").read_bytes().split()[1])
    except OSError:
        queued_ns = 0
    return time.monotonic() - queued_ns / 1e9
