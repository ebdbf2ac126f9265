"""Joining cgroup v1: the launch thread joins a leaf, starts a process there, and goes back to its own cgroup.

A child begins in the cgroup of the thread that forks it. With version 1 a thread moves itself by writing 0 to `tasks`,
for which the kernel needs no lock (cgroup_procs_write_start in kernel/cgroup/cgroup.c): 0.1 ms for all hierarchies.
Moving another process waits for a grace period in each: 5 ms, and up to 15. Version 2 moves whole processes only, so
there the child is moved (`outside/cgroup_attach.py`).

The launch thread does it: its memory is the process's, which is charged where the main thread stands, and nobody else
forks while it is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from fumehood_sandbox.cgroup.leaf import Leaf
from fumehood_sandbox.cgroup.version import write
from fumehood_sandbox.launch_thread import launch_thread

_Result = TypeVar("_Result")


class JoiningThread:
    """The launch thread as one that can join leaves."""

    def __init__(self, own: Sequence[str]) -> None:
        """`own` are this process's own cgroups, one in each hierarchy that leaves lie in."""
        self._own = tuple(own)

    def can_join(self, leaf: Leaf) -> bool:
        """Try it with an empty leaf: whether the thread gets in, and back to where it came from."""
        try:
            own = self.run_in(None, _own_cgroup)
            return self.run_in(leaf, _own_cgroup) != own and self.run_in(None, _own_cgroup) == own
        except OSError:
            return False

    def run_in(self, leaf: Leaf | None, start: Callable[[], _Result]) -> _Result:
        """Call `start` in the leaf, or with None in this process's own cgroup, and return what it returns.

        Raises:
            OSError: the kernel lets the thread into the leaf no more, or not out of it.
        """
        return launch_thread().run(lambda: self._start_in(leaf, start))

    def _start_in(self, leaf: Leaf | None, start: Callable[[], _Result]) -> _Result:
        if leaf is None:
            return start()
        try:
            leaf.join()
            return start()
        finally:
            for folder in self._own:
                write(f"{folder}/tasks", "0")


def _own_cgroup() -> str:
    return Path("/proc/thread-self/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
