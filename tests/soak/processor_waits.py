"""When processes were ready to run and had no processor: run delays of their threads (schedstat in proc(5))."""

from __future__ import annotations

import bisect
import contextlib
import os
import time
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


class RunDelays:
    """Samples threads, and keeps each delay as the interval that ended when the thread got a processor.

    The kernel adds a delay to its sum when it is over, so a sample that finds more tells of the time just before it.
    """

    def __init__(self) -> None:
        """Of no thread yet."""
        self._seen: dict[str, float] = {}
        self._found: list[Interval] = []
        self._merged: list[Interval] = []

    def sample(self, threads: Iterable[str]) -> None:
        """Look at these threads, each by its folder in /proc. Often enough that a sample stands for one delay."""
        for thread in threads:
            # No such thread any more; a kernel without CONFIG_SCHED_INFO has no schedstat.
            with contextlib.suppress(OSError), open(f"{thread}/schedstat", "rb") as file:  # noqa: PTH123 - very often
                total_s = int(file.read().split()[1]) / 1e9
                now, delay_s = time.time(), total_s - self._seen.get(thread, total_s)
                self._seen[thread] = total_s
                if delay_s > 0:
                    self._found.append((now - delay_s, now))

    def within(self, begin: float, end: float) -> float:
        """How long at least one of them had none between two times (`time.time()`), in seconds."""
        self._take_in()
        at = bisect.bisect_left(self._merged, begin, key=lambda each: each[1])
        waited_s = 0.0
        for first, last in self._merged[at:]:
            if first >= end:
                break
            waited_s += min(last, end) - max(first, begin)
        return waited_s

    def _take_in(self) -> None:
        """Merge what was found since. It is asked for each of many calls: what lies long ago is not looked at again."""
        if not self._found:
            return
        found, self._found = self._found, []
        at = bisect.bisect_left(self._merged, min(found)[0], key=lambda each: each[1])
        self._merged[at:] = merged([*self._merged[at:], *found])


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as intervals that neither meet nor overlap, in order."""
    made: list[Interval] = []
    for first, last in sorted(intervals):
        if made and first <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made


def threads_of(processes: Sequence[int]) -> list[str]:
    """The threads of these processes, as folders of /proc."""
    found = []
    for process in processes:
        with contextlib.suppress(OSError):
            folder = f"/proc/{process}/task"
            found += [f"{folder}/{thread}" for thread in os.listdir(folder)]  # noqa: PTH208 - names alone
    return found
