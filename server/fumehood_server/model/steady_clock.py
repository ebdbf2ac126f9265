"""POSIX time that CLOCK_BOOTTIME holds up: where the wall clock is set back, it goes on from where it was.

For what expires, and for the times of events, by which that is recorded. Set forward, it follows: what expires early is
asked for again, what expires late is a hole.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def _elapsed_ns() -> int:
    # Not CLOCK_MONOTONIC, which stands still while the machine is suspended.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class SteadyClock:
    """One process's. For any thread."""

    __slots__ = ("_elapsed_ns", "_lead_ns", "_wall_ns")

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns, elapsed_ns: Callable[[], int] = _elapsed_ns) -> None:
        """Begin with the wall clock's time."""
        self._wall_ns, self._elapsed_ns = wall_ns, elapsed_ns
        self._lead_ns = wall_ns() - elapsed_ns()
        """Wall clock before the elapsed time, at the most that was seen."""

    def hold_up(self, time_us: int) -> None:
        """Go on from this time at least: it was seen before this process began."""
        self._lead_ns = max(self._lead_ns, time_us * 1_000 - self._elapsed_ns())

    def now_us(self) -> int:
        """Microseconds since 1970, by the wall clock where that was not set back."""
        elapsed_ns = self._elapsed_ns()
        self._lead_ns = max(self._lead_ns, self._wall_ns() - elapsed_ns)
        return (elapsed_ns + self._lead_ns) // 1_000


STEADY_CLOCK = SteadyClock()
