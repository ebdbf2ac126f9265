"""What cgroup v1 and v2 have in common: what can be set and read in one folder of a hierarchy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

CPU_PERIOD_US = 100_000
"""In which a quota of processor time is used up and renewed: the kernel's own default. A process of one thread never
meets a quota of one processor, however long or short the period is."""


class Control(StrEnum):
    """What a leaf can do for a sandbox."""

    MEMORY = "memory"
    """Bounds what its processes hold together, swap included, and counts those that were killed for it."""
    PROCESSES = "processes"
    """Bounds processes and threads, and counts refusals."""
    SHARE = "share"
    """A leaf gets as much of the processors as any other, however many threads it has."""
    QUOTA = "quota"
    """Bounds how many processors' worth of time its processes have together."""
    TIME = "time"
    """Counts processor time."""
    KILL = "kill"
    """Ends all processes at once, whatever their parents, groups and sessions."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A file of a cgroup that holds one number of interest."""

    name: str
    number: Callable[[bytes], int]


class CgroupVersion(Protocol):
    """One version of cgroups. All methods raise OSError with what the kernel says."""

    @property
    def name(self) -> str:
        """Its name in receipts: `cgroup1` or `cgroup2`."""

    @property
    def kills_at_once(self) -> bool:
        """Whether `kill` is one write."""

    def offered(self, folder: str) -> frozenset[Control]:
        """What could be had of leaves in this folder, before it was tried."""

    def enable(self, folder: str, controls: frozenset[Control]) -> None:
        """Prepare a folder so that leaves made in it have these controls."""

    def limit_memory(self, leaf: str, limit_bytes: int) -> None:
        """Bound memory, and allow no swap on top of it."""

    def memory_limit(self, leaf: str) -> int:
        """The bound, as the kernel keeps it: rounded to pages."""

    def limit_processes(self, leaf: str, count: int) -> None:
        """Bound processes and threads."""

    def processes_limit(self, leaf: str) -> int:
        """The bound, as the kernel keeps it."""

    def limit_cpus(self, leaf: str, count: int) -> None:
        """Bound processor time to so many processors' worth (CFS bandwidth, sched-bwc)."""

    def cpus_limit(self, leaf: str) -> float:
        """The bound."""

    def lower_weight(self, leaf: str) -> None:
        """Give it a quarter of the processors' time that a cgroup has by default, where both want it."""

    def kill(self, leaf: str) -> None:
        """Kill every process of the leaf. Bounded."""

    @property
    def time(self) -> Reading:
        """Processor time of all that ever ran in a leaf, in nanoseconds."""

    @property
    def peak(self) -> Reading:
        """The most memory that a leaf held, in bytes."""

    @property
    def held(self) -> Reading:
        """What it holds now, in bytes."""

    @property
    def oom_kills(self) -> Reading:
        """Processes that were killed because the leaf was full."""

    @property
    def refused(self) -> Reading:
        """Forks that were refused because there were too many processes."""

    @property
    def processes(self) -> Reading:
        """Processes and threads now."""

    @property
    def most_processes(self) -> Reading:
        """The most of them at a time."""


def write(path: str, text: str) -> None:
    """Write a control file in one call, as the kernel wants it.

    Raises:
        OSError: the kernel refuses it.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read(path: str) -> bytes:
    """A control file, up to a page.

    Raises:
        OSError: it isn't there, or may not be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def members(folder: str) -> list[int]:
    """Processes of a cgroup, as seen from this process's PID namespace. Empty when it is gone."""
    with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", encoding="ascii") as stream:  # noqa: PTH123 - plain text paths here
        return [int(line) for line in stream if line.strip() != "0"]
    return []


def field(key: bytes) -> Callable[[bytes], int]:
    """Reads the number after a key of a flat-keyed file. 0 where the key isn't there."""
    start, inside = key + b" ", b"\n" + key + b" "

    def number(data: bytes) -> int:
        at = 0 if data.startswith(start) else data.find(inside) + 1
        if at == 0 and not data.startswith(start):
            return 0
        at += len(start)
        end = data.find(b"\n", at)
        return int(data[at:] if end < 0 else data[at:end])

    return number
