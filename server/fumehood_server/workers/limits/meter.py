"""What a worker's processes use, by the kernel's own count: a cgroup's where there is one, else their clocks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fumehood_sandbox import Control

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

_CPU_CLOCK_OF_PROCESS = 2
"""CPUCLOCK_SCHED: user and system time of all threads, in nanoseconds (clock_getcpuclockid(3))."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Counters:
    """How often the kernel said no. They only grow."""

    oom_kills: int
    refused_forks: int


NO_COUNTERS = Counters(0, 0)


class Meter:
    """Reads one worker's usage. On the path of each call: a reading takes 1 to 2 microseconds with a cgroup."""

    __slots__ = (
        "_clocks",
        "_ended_ns",
        "_leaf",
        "_oom_kills",
        "_peak",
        "_process",
        "_refused",
        "cpu_ns",
        "source",
        "told",
    )

    def __init__(self, process: SandboxedProcess) -> None:
        """`process` runs, and is closed no sooner than the last reading."""
        self._process = process
        leaf = self._leaf = process.leaf
        controls = leaf.controls if leaf is not None else frozenset()
        self._clocks: dict[int, int] = {}
        """Processes whose clocks are read, and what they last said."""
        self._ended_ns = 0
        """What those had used that have ended."""
        self._peak = 0
        """The most memory that was ever looked at, where nothing counts it."""
        self._oom_kills: Callable[[], int | None] = _none
        self._refused: Callable[[], int | None] = _none
        self.cpu_ns: Callable[[], int] = self._clock_ns
        """Processor time of everything that ran in it so far, in nanoseconds."""
        if leaf is not None:
            if Control.TIME in controls:
                self.cpu_ns = leaf.cpu_ns  # type: ignore[assignment] # never None where time is counted
            if Control.MEMORY in controls:
                self._oom_kills = leaf.oom_kills
            if Control.PROCESSES in controls:
                self._refused = leaf.refused_forks
        self.told = NO_COUNTERS
        """The counters when they were last read. They stand for those of a call's start, since reading them costs as
        much as all else that is measured: what an earlier call made grow is read when it fails, or within 0.1 s."""
        self.source = leaf.source if leaf is not None and leaf.source else "proc"
        """What measures, for `Usage.source`."""
        if self.cpu_ns == self._clock_ns:
            self.look_at(process.pids())

    @property
    def counts_time(self) -> bool:
        """Whether the count is of the whole tree, ended processes among it."""
        return self.cpu_ns != self._clock_ns

    @property
    def bounds_memory(self) -> bool:
        """Whether a cgroup holds the tree's memory, so that nobody has to watch it."""
        return self._leaf is not None and Control.MEMORY in self._leaf.controls

    @property
    def bounds_processes(self) -> bool:
        """Whether a cgroup holds the number of processes."""
        return self._leaf is not None and Control.PROCESSES in self._leaf.controls

    def counters(self) -> Counters:
        """How often the kernel said no so far. None of it where nothing counts."""
        oom, refused = self._oom_kills(), self._refused()
        self.told = Counters(oom or 0, refused or 0) if oom or refused else NO_COUNTERS
        return self.told

    def peak_memory_bytes(self) -> int:
        """The most memory that was held since the start. 0 where it isn't known."""
        peak = self._leaf.peak_memory_bytes() if self._leaf is not None else None
        if peak is not None:
            return peak
        for pid in tuple(self._clocks)[:1]:
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/statm", "rb") as stream:  # noqa: PTH123 - on the path of calls
                self._peak = max(self._peak, int(stream.read().split()[1]) * _PAGE_BYTES)
        return self._peak

    def note(self) -> None:
        """Read once more before a kill, after which a process says nothing any more. A cgroup's numbers stay."""
        if self._leaf is None:
            self.cpu_ns()
            self.peak_memory_bytes()

    def most_processes(self) -> int:
        """The most processes and threads at a time. 0 where it isn't known."""
        return (self._leaf.most_processes() if self._leaf is not None else None) or 0

    def look_at(self, pids: list[int], memory_bytes: int = 0) -> None:
        """Take over what a look at the tree has found, where no cgroup counts."""
        self._peak = max(self._peak, memory_bytes)
        self._clock_ns()
        for pid in tuple(self._clocks):
            if pid not in pids:
                self._ended_ns += self._clocks.pop(pid)
        for pid in pids:
            self._clocks.setdefault(pid, 0)

    def _clock_ns(self) -> int:
        total = self._ended_ns
        for pid, last in self._clocks.items():
            try:
                now = time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
            except OSError:  # it has ended
                now = last
            # A number that was given to another process since has a clock that went back.
            self._clocks[pid] = now = max(now, last)
            total += now
        return total


def _none() -> int | None:
    return None
