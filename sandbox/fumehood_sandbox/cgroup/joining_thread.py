"""Joining cgroup v1: a thread that joins a leaf, starts a process there, and goes back to its own cgroup.

A child begins in the cgroup of the thread that forks it. With version 1 a thread moves itself by writing 0 to `tasks`,
for which the kernel needs no lock (cgroup_procs_write_start in kernel/cgroup/cgroup.c): 0.1 ms for all hierarchies.
Moving another process waits for a grace period in each: 5 ms, and up to 15. Version 2 moves whole processes only, so
there the child is moved (`outside/cgroup_attach.py`).

A thread of its own does it, for three reasons. Its memory is the process's, which is charged where the main thread
stands. It lives as long as the process, which --die-with-parent needs of it (PR_SET_PDEATHSIG in prctl(2)). And nobody
else forks while it is inside.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from fumehood_sandbox.cgroup.leaf import Leaf
from fumehood_sandbox.cgroup.version import write

_Result = TypeVar("_Result")


class JoiningThread:
    """A thread that can join leaves. Ends with the process."""

    def __init__(self, own: Sequence[str]) -> None:
        """`own` are this process's own cgroups, one in each hierarchy that leaves lie in."""
        self._own = tuple(own)
        self._jobs: queue.SimpleQueue[tuple[Leaf | None, Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="fumehood-cgroup", daemon=True).start()

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
        result: Future[_Result] = Future()
        self._jobs.put((leaf, start, result))
        return result.result()

    def _serve(self) -> None:
        while True:
            leaf, start, result = self._jobs.get()
            try:
                if leaf is None:
                    made = start()
                else:
                    try:
                        leaf.join()
                        made = start()
                    finally:
                        for folder in self._own:
                            write(f"{folder}/tasks", "0")
            except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
                result.set_exception(error)
            else:
                result.set_result(made)
            del leaf, start, result


def _own_cgroup() -> str:
    return Path("/proc/thread-self/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
