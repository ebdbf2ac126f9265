"""cgroup v1: a hierarchy for each controller, or for some together. Source: Documentation/admin-guide/cgroup-v1."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from fumehood_sandbox.cgroup.version import CPU_PERIOD_US, Control, Reading, field, members, read, write

_KILL_ROUNDS = 50
"""A frozen leaf is killed in one round. Without a freezer each round kills what was forked during the last."""
_FREEZE_WAIT_S = 0.001
_FREEZE_ROUNDS = 20
"""Freezing takes well under a millisecond, but for a task that hangs in the kernel, which can't fork either."""

_OF_CONTROLLER = {
    "memory": {Control.MEMORY},
    "pids": {Control.PROCESSES},
    "cpu": {Control.SHARE, Control.QUOTA},
    "cpuacct": {Control.TIME},
    "freezer": {Control.KILL},
}


class Cgroup1:
    """One hierarchy of version 1."""

    name = "cgroup1"
    kills_at_once = False
    time = Reading("cpuacct.usage", int)
    peak = Reading("memory.max_usage_in_bytes", int)
    held = Reading("memory.usage_in_bytes", int)
    oom_kills = Reading("memory.oom_control", field(b"oom_kill"))
    refused = Reading("pids.events", field(b"max"))
    processes = Reading("pids.current", int)
    most_processes = Reading("pids.peak", int)

    def __init__(self, controllers: frozenset[str]) -> None:
        """Keep the controllers that are bound to the hierarchy."""
        self._controllers = controllers

    def offered(self, folder: str) -> frozenset[Control]:
        """What its controllers give."""
        del folder
        return frozenset().union(*(_OF_CONTROLLER.get(each, frozenset()) for each in self._controllers))

    def enable(self, folder: str, controls: frozenset[Control]) -> None:
        """Nothing to do: every folder has the hierarchy's controllers."""

    def limit_memory(self, leaf: str, limit_bytes: int) -> None:
        """Bound memory; then memory and swap together, or no swapping where the kernel doesn't count swap."""
        write(f"{leaf}/memory.limit_in_bytes", str(limit_bytes))
        try:
            write(f"{leaf}/memory.memsw.limit_in_bytes", str(limit_bytes))
        except FileNotFoundError:
            write(f"{leaf}/memory.swappiness", "0")

    def memory_limit(self, leaf: str) -> int:
        """The bound."""
        return int(read(f"{leaf}/memory.limit_in_bytes"))

    def limit_processes(self, leaf: str, count: int) -> None:
        """Bound tasks."""
        write(f"{leaf}/pids.max", str(count))

    def processes_limit(self, leaf: str) -> int:
        """The bound."""
        return int(read(f"{leaf}/pids.max"))

    def limit_cpus(self, leaf: str, count: int) -> None:
        """Bound processor time. The period is what it is by default."""
        write(f"{leaf}/cpu.cfs_quota_us", str(count * CPU_PERIOD_US))

    def cpus_limit(self, leaf: str) -> float:
        """The bound."""
        return int(read(f"{leaf}/cpu.cfs_quota_us")) / int(read(f"{leaf}/cpu.cfs_period_us"))

    def lower_weight(self, leaf: str) -> None:
        """A quarter of 1024."""
        write(f"{leaf}/cpu.shares", "256")

    def kill(self, leaf: str) -> None:
        """Freeze the leaf so that nobody forks, send SIGKILL to each, thaw: they die at once. Then look again."""
        for _ in range(_KILL_ROUNDS):
            if not members(leaf):
                return
            self._freeze(leaf)
            try:
                for pid in members(leaf):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            finally:
                with contextlib.suppress(OSError):
                    write(f"{leaf}/freezer.state", "THAWED")
            time.sleep(_FREEZE_WAIT_S)

    @staticmethod
    def _freeze(leaf: str) -> None:
        with contextlib.suppress(OSError):  # no freezer in this hierarchy, or it is gone
            write(f"{leaf}/freezer.state", "FROZEN")
            for _ in range(_FREEZE_ROUNDS):
                if read(f"{leaf}/freezer.state").strip() == b"FROZEN":
                    return
                time.sleep(_FREEZE_WAIT_S)
