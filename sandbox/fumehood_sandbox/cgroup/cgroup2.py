"""cgroup v2: one hierarchy, where a folder's controllers are switched on in its parent.

Source: cgroups(7), Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import errno
import os

from fumehood_sandbox.cgroup.version import CPU_PERIOD_US, Control, Reading, field, members, read, write

_CONTROLLERS = {Control.MEMORY: "memory", Control.PROCESSES: "pids", Control.SHARE: "cpu", Control.QUOTA: "cpu"}
_ASIDE = "fumehood-sidecar"
"""Where this process moves when its own cgroup shall have leaves. Not named like a leaf, so it is never swept."""


def _microseconds(key: bytes) -> Reading:
    number = field(key)
    return Reading("cpu.stat", lambda data: number(data) * 1000)


class Cgroup2:
    """The unified hierarchy."""

    name = "cgroup2"
    kills_at_once = True
    time = _microseconds(b"usage_usec")
    peak = Reading("memory.peak", int)
    held = Reading("memory.current", int)
    oom_kills = Reading("memory.events", field(b"oom_kill"))
    refused = Reading("pids.events", field(b"max"))
    processes = Reading("pids.current", int)
    most_processes = Reading("pids.peak", int)

    def offered(self, folder: str) -> frozenset[Control]:
        """Time and kill are the hierarchy's own; the rest are the folder's controllers."""
        try:
            there = set(read(f"{folder}/cgroup.controllers").decode().split())
        except OSError:
            return frozenset()
        named = {control for control, controller in _CONTROLLERS.items() if controller in there}
        return frozenset(named | {Control.TIME, Control.KILL})

    def enable(self, folder: str, controls: frozenset[Control]) -> None:
        """Switch controllers on for the folder's children.

        The kernel refuses that (EBUSY) while processes are in the folder itself. Where this process is the only one,
        it moves into a child of its own; others are nobody's to move.
        """
        on = set(read(f"{folder}/cgroup.subtree_control").decode().split())
        wanted = [_CONTROLLERS[each] for each in sorted(controls) if each in _CONTROLLERS]
        for controller in wanted:
            if controller in on:
                continue
            try:
                write(f"{folder}/cgroup.subtree_control", f"+{controller}")
            except OSError as error:
                if error.errno != errno.EBUSY or members(folder) != [os.getpid()]:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(f"{folder}/{_ASIDE}")  # noqa: PTH102 - plain text paths here
                write(f"{folder}/{_ASIDE}/cgroup.procs", str(os.getpid()))
                write(f"{folder}/cgroup.subtree_control", f"+{controller}")

    def limit_memory(self, leaf: str, limit_bytes: int) -> None:
        """Bound memory; no swap where the kernel accounts swap."""
        write(f"{leaf}/memory.max", str(limit_bytes))
        with contextlib.suppress(FileNotFoundError):
            write(f"{leaf}/memory.swap.max", "0")

    def memory_limit(self, leaf: str) -> int:
        """The bound."""
        return int(read(f"{leaf}/memory.max"))

    def limit_processes(self, leaf: str, count: int) -> None:
        """Bound tasks."""
        write(f"{leaf}/pids.max", str(count))

    def processes_limit(self, leaf: str) -> int:
        """The bound."""
        return int(read(f"{leaf}/pids.max"))

    def limit_cpus(self, leaf: str, count: int) -> None:
        """Bound processor time."""
        write(f"{leaf}/cpu.max", f"{count * CPU_PERIOD_US} {CPU_PERIOD_US}")

    def cpus_limit(self, leaf: str) -> float:
        """The bound."""
        quota, period = read(f"{leaf}/cpu.max").split()
        return int(quota) / int(period)

    def lower_weight(self, leaf: str) -> None:
        """A quarter of 100."""
        write(f"{leaf}/cpu.weight", "25")

    def kill(self, leaf: str) -> None:
        """One write; the kernel also kills what is being forked meanwhile."""
        write(f"{leaf}/cgroup.kill", "1")
