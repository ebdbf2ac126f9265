"""A leaf cgroup: one sandbox's own, in as many hierarchies as it takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from fumehood_sandbox.cgroup.version import CgroupVersion, Control, Reading, members, read, write

_NUMBER_BYTES = 4096
"""All of these files are shorter than a page."""
_LEFT_BYTES = 512 * 1024
"""Most memory that an empty leaf may still be charged with to pass for a new one.

There is some: what each processor holds in reserve for it (MEMCG_CHARGE_BATCH in mm/memcontrol.c), and pages of files
that it was the first to read.
"""


_COUNTED = frozenset({Control.TIME, Control.MEMORY, Control.PROCESSES})
_CAN_BE_RESET = ("time", "peak")
"""What version 1 lets begin anew, by writing 0 to it."""


class Leaf:
    """Folders that were made for one sandbox, with their limits set. Owned: `discard` it when its processes are gone.

    Readings are a pread(2) of a file that is kept open, 0.5 to 1.5 microseconds each. They work after the processes'
    end as well, until `discard`. What a leaf doesn't measure reads as None.
    """

    def __init__(
        self,
        folders: Mapping[str, tuple[CgroupVersion, frozenset[Control]]],
        *,
        spare_processes: int,
        retry: Callable[[Leaf], None],
    ) -> None:
        """`folders` exist. `spare_processes` are those of the sandbox's own, counted but no part of the limit.

        `retry` is given a leaf that couldn't be removed yet.
        """
        self._folders = dict(folders)
        self._hierarchies = len(self._folders)
        self._spare = spare_processes
        self._retry = retry
        self._fds: dict[str, tuple[int, Reading]] = {}
        self._tasks_fds: tuple[int, ...] = ()
        self._name = os.path.basename(next(iter(folders), ""))  # noqa: PTH119 - plain text paths here
        self.reuse: Callable[[Leaf], bool] | None = None
        """Asked by `discard` whether somebody takes the leaf over in place of its removal."""
        self.controls: frozenset[Control] = frozenset().union(*(given for _, given in folders.values()))
        """What it does."""
        try:
            for folder, (version, controls) in folders.items():
                for name, control, reading in (
                    ("time", Control.TIME, version.time),
                    ("peak", Control.MEMORY, version.peak),
                    ("held", Control.MEMORY, version.held),
                    ("oom_kills", Control.MEMORY, version.oom_kills),
                    ("refused", Control.PROCESSES, version.refused),
                    ("processes", Control.PROCESSES, version.processes),
                    ("most_processes", Control.PROCESSES, version.most_processes),
                ):
                    if control in controls:
                        self._open(name, folder, reading)
        except BaseException:
            self.close()
            raise
        measuring = [
            version.name
            for control in (Control.TIME, Control.MEMORY)
            for version, given in folders.values()
            if control in given
        ]
        self.source = "+".join(dict.fromkeys(measuring))
        """What measures time and memory: "cgroup2", "cgroup1", or "cgroup2+cgroup1" where they share the work."""

    def _open(self, name: str, folder: str, reading: Reading) -> None:
        # memory.peak and pids.peak came late, with Linux 5.19 and 6.1.
        with contextlib.suppress(FileNotFoundError):
            flags = os.O_RDWR if name in _CAN_BE_RESET and self.can_be_joined else os.O_RDONLY
            self._fds[name] = (os.open(f"{folder}/{reading.name}", flags | os.O_CLOEXEC), reading)

    def add_process(self, pid: int) -> None:
        """Move a process into the leaf. What it forks afterwards is in it too; children that it has already are not.

        May take 15 ms: the kernel waits for a grace period when no process was moved for a while. Safe to call from
        another thread than the one that owns the leaf.

        Raises:
            OSError: the kernel refuses, or there is no such process.
        """
        for folder in self._folders:
            write(f"{folder}/cgroup.procs", str(pid))

    @property
    def can_be_joined(self) -> bool:
        """Whether a thread can move itself into it, which version 1 allows without waiting for anything."""
        return all(version.name == "cgroup1" for version, _ in self._folders.values())

    def tasks_fds(self) -> tuple[int, ...]:
        """Descriptors of its `tasks` files, which stay its own: a thread that writes 0 to each joins it. Version 1.

        Who may join is judged by who opened them (CVE-2021-4197), so a process without rights can be handed them.

        Raises:
            OSError: the leaf is gone.
        """
        if not self._tasks_fds:
            opened: list[int] = []
            try:
                for folder in self._folders:
                    opened.append(os.open(f"{folder}/tasks", os.O_WRONLY | os.O_CLOEXEC))  # noqa: PERF401 - one may fail
            except BaseException:
                for fd in opened:
                    os.close(fd)
                raise
            self._tasks_fds = tuple(opened)
        return self._tasks_fds

    def holds(self, pid: int) -> bool:
        """Whether a process is in it, in each hierarchy. One read, for the process knows where it is (cgroups(7)).

        A leaf that was removed, be it in one hierarchy, holds nobody.
        """
        try:
            memberships = read(f"/proc/{pid}/cgroup")
        except OSError:
            return False
        return memberships.count(b"/" + self._name.encode() + b"\n") == self._hierarchies

    def reset(self) -> bool:
        """Make an empty leaf as new, for the same limits. False: it isn't as new, so it must be discarded.

        What version 1 counts can begin again, but for forks and kills that were refused and the most processes; so a
        leaf in which nothing of this happened, and which holds nothing any more, is the same as another one. Making
        and removing one takes 0.6 ms, this 0.01 ms.
        """
        if not self.can_be_joined or not self.controls >= _COUNTED:
            return False
        try:
            if self._read("processes") or self._read("most_processes") != 1 or (self._read("held") or 0) > _LEFT_BYTES:
                return False
            if self._read("oom_kills") or self._read("refused"):
                return False
            for name in _CAN_BE_RESET:
                os.write(self._fds[name][0], b"0")
        except (OSError, KeyError):
            return False
        return True

    def join(self) -> None:
        """Move the calling thread into the leaf, and with it what it forks. Version 1.

        Raises:
            OSError: the kernel refuses.
        """
        for folder in self._folders:
            write(f"{folder}/tasks", "0")

    def members(self, but: tuple[int, ...] = ()) -> list[int]:
        """Its processes, lowest number first, without those named. One read of a file."""
        folder = next(iter(self._folders), None)
        return sorted(pid for pid in members(folder) if pid not in but) if folder is not None else []

    def kill_at_once(self) -> None:
        """Kill every process in it where the kernel does that in one write (version 2). Elsewhere nothing happens."""
        for folder, (version, controls) in self._folders.items():
            if Control.KILL in controls and version.kills_at_once:
                with contextlib.suppress(OSError):
                    version.kill(folder)

    def kill(self) -> None:
        """Kill every process in it. With version 1 that takes some milliseconds of rounds, and blocks."""
        for folder, (version, controls) in self._folders.items():
            if Control.KILL in controls:
                with contextlib.suppress(OSError):
                    version.kill(folder)

    def cpu_ns(self) -> int | None:
        """Processor time, user and system, of everything that ever ran in it, in nanoseconds."""
        return self._read("time")

    def peak_memory_bytes(self) -> int | None:
        """The most memory that it held: anonymous memory, tmpfs, memfd, file cache and the kernel's own for it."""
        return self._read("peak")

    def memory_bytes(self) -> int | None:
        """The memory that it holds."""
        return self._read("held")

    def oom_kills(self) -> int | None:
        """How many processes were killed because it was full."""
        return self._read("oom_kills")

    def refused_forks(self) -> int | None:
        """How often a fork failed because it held as many processes as it may."""
        return self._read("refused")

    def processes(self) -> int | None:
        """Processes and threads of the program."""
        count = self._read("processes")
        return None if count is None else max(count - self._spare, 0)

    def most_processes(self) -> int | None:
        """The most of them at a time."""
        count = self._read("most_processes")
        return None if count is None else max(count - self._spare, 0)

    def _read(self, name: str) -> int | None:
        found = self._fds.get(name)
        return None if found is None else found[1].number(os.pread(found[0], _NUMBER_BYTES, 0))

    def close(self) -> None:
        """Close what is read from, and its tasks descriptors. Idempotent."""
        tasks_fds, self._tasks_fds = self._tasks_fds, ()
        for fd in tasks_fds:
            os.close(fd)
        while self._fds:
            os.close(self._fds.popitem()[1][0])

    def discard(self) -> None:
        """Remove it unless `reuse` takes it over. Where a process is still vanishing, a later leaf's making removes it.

        Idempotent.
        """
        if self.reuse is not None and self.reuse(self):
            return
        if not self.remove():
            self._retry(self)

    def remove(self) -> bool:
        """Close it and remove its folders. False: something is still in it, so try again later. Idempotent."""
        self.close()
        for folder in tuple(self._folders):
            try:
                os.rmdir(folder)  # noqa: PTH106 - plain text paths here
            except FileNotFoundError:
                pass
            except OSError:
                continue
            del self._folders[folder]
        return not self._folders
