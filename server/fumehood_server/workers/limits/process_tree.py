"""Looks at the process tree of a worker that no cgroup bounds, and adds up what it holds. Weaker than a cgroup.

Between two looks a tree can hold more than it may, bounded by the limits of each of its processes alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

import psutil
from fumehood_sandbox import Layer

INTERVAL_S = 0.1
"""Between two looks at a busy worker. One costs some 50 microseconds for each process; most allocate well below a
GiB in that time."""

_MEMORY_FILE = "/memfd:"
_SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - places inside
_BLOCK_BYTES = 512
_MAX_DESCRIPTORS = 4096
"""Most descriptors that one look follows. A tree may have open_files times processes of them."""

LAYER = Layer(
    "watchdog",
    f"no cgroup bounds the tree: it is added up every {INTERVAL_S * 1000:.0f} ms while it is called",
    weaker=True,
)
"""What it adds to a receipt."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What one look has found."""

    pids: list[int]
    tasks: int
    """Processes and threads."""
    memory_bytes: int
    """Private memory, and files in memory, mapped or not."""


def children(pids: Iterable[int]) -> frozenset[int]:
    """The children of processes, those among them that are dead and were not waited for, which no cgroup lists."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - as above
                    found.update(map(int, file.read().split()))
    return frozenset(found)


def look(pids: list[int], memory_limit_bytes: int) -> Tree:
    """Add up a tree. Who ends meanwhile counts as nothing.

    What forked processes have in common is counted for each of them at first, and by share once that is too much.
    """
    tasks = private = 0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            with process.oneshot():
                tasks += process.num_threads()
                memory = process.memory_info()
                private += max(memory.rss - memory.shared, 0)
    files = _files_in_memory(pids)
    if private + files > memory_limit_bytes:
        private = sum(_proportional_bytes(pid) for pid in pids)
    return Tree(pids, tasks, private + files)


def scratch_bytes(pids: Iterable[int]) -> int:
    """What lies in the fuller of the tree's private tmpfs folders. 0 where it can't be seen, or has none."""
    return max((_used(pid, folder) for pid in list(pids)[:1] for folder in _SCRATCH), default=0)


def scratch_files(pids: Iterable[int]) -> int:
    """Inodes of that of them which has more in use. Likewise."""
    return max((_inodes_used(pid, folder) for pid in list(pids)[:1] for folder in _SCRATCH), default=0)


def open_files(pids: Iterable[int]) -> int:
    """The descriptors of that process of the tree that has most of them."""
    return max((len(_names(f"/proc/{pid}/fd")) for pid in pids), default=0)


def _files_in_memory(pids: list[int]) -> int:
    found: dict[tuple[int, int], int] = {}
    left = _MAX_DESCRIPTORS
    for pid in pids:
        for name in _names(f"/proc/{pid}/fd")[:left]:
            left -= 1
            with contextlib.suppress(OSError):
                path = f"/proc/{pid}/fd/{name}"
                if os.readlink(path).startswith(_MEMORY_FILE):  # noqa: PTH115 - many, and often
                    status = os.stat(path)  # noqa: PTH116 - likewise
                    found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
    scratch = sum(_used(pid, folder) for pid in pids[:1] for folder in _SCRATCH)
    return sum(found.values()) + scratch


def _used(pid: int, folder: str) -> int:
    status = _status(pid, folder)
    return 0 if status is None else (status.f_blocks - status.f_bfree) * status.f_frsize


def _inodes_used(pid: int, folder: str) -> int:
    status = _status(pid, folder)
    return 0 if status is None else status.f_files - status.f_ffree


def _status(pid: int, folder: str) -> os.statvfs_result | None:
    """Of a process's own file system there. None: it has none, or can't be looked into."""
    with contextlib.suppress(OSError):
        inside = f"/proc/{pid}/root{folder}"
        if os.stat(inside).st_dev != os.stat(folder).st_dev:  # noqa: PTH116 - likewise; else it is the machine's own
            return os.statvfs(inside)
    return None


def _proportional_bytes(pid: int) -> int:
    """Anonymous memory, that of others shared by their number. Source: proc_pid_smaps_rollup(5)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:  # noqa: PTH123 - likewise
        for line in stream:
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []
