"""Tells who makes one quick call after another from all others, and has the sidecar's threads run to suit them."""

from __future__ import annotations

import asyncio
import time

from fumehood_server import one_processor

REST_S = 0.000_1
"""From the end of a call to the next, at least, if its caller waited for the one before it made the other."""
FEWEST_LONE_CALLS = 16
"""Calls in a row, each alone and quick, before the threads are gathered. That and its end cost some 50 microseconds."""
MOST_LONE_CALLS = 2 * FEWEST_LONE_CALLS
"""More are not counted, so that what was learnt is forgotten as soon."""
QUICK_S = 0.002
"""A call that takes longer gains nothing that anybody would see."""
SLOW_LONE_CALLS = FEWEST_LONE_CALLS + 1
"""As many quick calls are forgotten for a slow one. One now and then is the machine's, two in a row are the tool's."""
HOLD_S = 1.0
"""Then the threads are let go for a moment, so that the kernel can place them anew. Nobody stays on one processor who
has stopped calling."""


class Pace:
    """Follows the calls of one sidecar. For one event loop; a comparison or two for each call."""

    __slots__ = ("_began_at", "_ended_at", "_lone", "_timer")

    def __init__(self) -> None:
        """No calls yet."""
        self._lone = 0
        self._began_at = 0.0
        self._ended_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Runs while the threads are gathered."""

    def began(self, in_flight: int) -> None:
        """A call began; `in_flight` counts it."""
        now = time.monotonic()
        # One of a crowd can be alone, where a quick worker has answered each before the next is read; but not rested.
        if in_flight > 1 or now - self._ended_at < REST_S:
            self._part()
            return
        self._began_at = now
        if self._lone < MOST_LONE_CALLS:
            self._lone += 1
        if self._lone >= FEWEST_LONE_CALLS and not one_processor.is_shared():
            one_processor.gather()
            if self._timer is None:  # else somebody has parted them, to start a process
                self._timer = asyncio.get_running_loop().call_later(HOLD_S, self._part)

    def ended(self) -> None:
        """A call ended."""
        self._ended_at = now = time.monotonic()
        if now - self._began_at > QUICK_S:
            self._lone -= SLOW_LONE_CALLS
            if self._lone <= 0:
                self._part()

    def close(self) -> None:
        """There will be no more calls."""
        self._part()

    def _part(self) -> None:
        self._lone = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            one_processor.part()
