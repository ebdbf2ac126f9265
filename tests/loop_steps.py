"""The longest step of a test's own event loop."""

from __future__ import annotations

import asyncio
import time


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
