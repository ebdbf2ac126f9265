"""Finds by trying where leaves can be made, and makes them.

For each hierarchy, version 2 first, and each folder that may be ours: make a leaf, put a process into it, set the
limits and read them back. What works is kept; what an earlier hierarchy gives already is not asked of a later one.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox.cgroup.cgroup1 import Cgroup1
from fumehood_sandbox.cgroup.cgroup2 import Cgroup2
from fumehood_sandbox.cgroup.hierarchy import Hierarchy, hierarchies
from fumehood_sandbox.cgroup.joining_thread import JoiningThread
from fumehood_sandbox.cgroup.leaf import Leaf
from fumehood_sandbox.cgroup.names import new_name, sweep
from fumehood_sandbox.cgroup.version import Control, Mechanism, Reading, members, read, write
from fumehood_sandbox.errors import LaunchError
from fumehood_sandbox.interpreter import stage_interpreter
from fumehood_sandbox.limits import Limits

SPARE_PROCESSES = 2
"""bubblewrap and pid 1 of its namespace: in the leaf, and not the program's."""
_TRIED_MEMORY_BYTES = 64 * 1024 * 1024
_TRIED_PROCESSES = 64
_END_S = 10.0
"""For the end of the process that was used for trying; it is killed."""
BOUNDING = frozenset({Control.MEMORY, Control.PROCESSES, Control.TIME})
"""Without one of these something weaker has to stand in."""
_KILLS_ALONE = frozenset({Control.KILL})


@dataclass(frozen=True, slots=True)
class Parent:
    """A folder in which leaves can be made, and what they can do there."""

    folder: str
    mechanism: Mechanism
    controls: frozenset[Control]
    own_folder: str
    """Where this process stands in the hierarchy."""


class Cgroups:
    """Where this process makes its leaves."""

    def __init__(self, parents: tuple[Parent, ...], problems: tuple[str, ...]) -> None:
        """What was found; see `find`."""
        self.parents = parents
        self.problems = problems
        """What failed on the way, for people."""
        self.controls: frozenset[Control] = frozenset().union(*(each.controls for each in parents))
        self._left: list[Leaf] = []
        self._lock = threading.Lock()
        if parents:
            atexit.register(self.tidy)

    @property
    def missing(self) -> tuple[Control, ...]:
        """Which of `BOUNDING` can't be had here."""
        return tuple(sorted(BOUNDING - self.controls))

    def describe(self) -> str:
        """What leaves do, and by which version: for people."""
        return ", ".join(
            f"{' and '.join(sorted(parent.controls))} by {parent.mechanism.name}" for parent in self.parents
        )

    def leaf(self, limits: Limits, *, killed_otherwise: bool = False) -> Leaf | None:
        """A new leaf with these limits, without a process. None where nothing can be had.

        `killed_otherwise`: its processes are ended by the end of a PID namespace, and the leaf need not be able to,
        which spares them a hierarchy where that has one of its own (version 1's freezer).

        Raises:
            LaunchError: one can't be made now, although one could be before. Nothing of it is left.
        """
        if not self.parents:
            return None
        self.tidy()
        name = new_name()
        made: dict[str, tuple[Mechanism, frozenset[Control]]] = {}
        try:
            for parent in self.parents:
                if killed_otherwise and parent.controls == _KILLS_ALONE:
                    continue
                folder = f"{parent.folder}/{name}"
                os.mkdir(folder)  # noqa: PTH102 - plain text paths here
                made[folder] = (parent.mechanism, parent.controls)
                if Control.MEMORY in parent.controls:
                    parent.mechanism.limit_memory(folder, limits.memory_bytes)
                if Control.PROCESSES in parent.controls:
                    parent.mechanism.limit_processes(folder, limits.processes + SPARE_PROCESSES)
            return Leaf(made, spare_processes=SPARE_PROCESSES, retry=self._keep)
        except OSError as error:
            for folder in made:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)  # noqa: PTH106 - plain text paths here
            path = str(error.filename or "")
            raise LaunchError("cgroup", error.strerror or "", path=path, errno=error.errno or 0) from error

    @functools.cached_property
    def joining_thread(self) -> JoiningThread | None:
        """What starts processes inside a leaf. None where a thread can't join one: then they are moved."""
        if not self.parents or any(parent.mechanism.name != Cgroup1.name for parent in self.parents):
            return None
        thread = JoiningThread([parent.own_folder for parent in self.parents])
        leaf = self.leaf(Limits())
        if leaf is None:
            return None
        try:
            return thread if thread.can_join(leaf) else None
        finally:
            leaf.discard()

    def _keep(self, leaf: Leaf) -> None:
        with self._lock:
            self._left.append(leaf)

    def tidy(self) -> None:
        """Try again to remove what was still busy."""
        if self._left:
            with self._lock:
                self._left = [leaf for leaf in self._left if not leaf.remove()]


NONE = Cgroups((), ("an operator's word: cgroups are off",))
"""Where no cgroup may be used."""


def cgroups() -> Cgroups:
    """What this process can use; tried once, which takes some 30 ms. Stale leaves of dead processes go with it."""
    return _found(os.getpid())


@functools.lru_cache(maxsize=1)
def _found(pid: int) -> Cgroups:
    del pid  # a fork is another process, with leaves of its own
    return find(hierarchies())


def find(mounted: tuple[Hierarchy, ...]) -> Cgroups:
    """Try every hierarchy. What is found is used best first: version 2, and our own folder before others.

    Where version 2 can't bound and version 1 can, version 1 does all: a start takes 10 ms less by `joining_thread`, and
    killing at once, which is what version 2 could add, is done by the PID namespace before.
    """
    first = [each for each in mounted if each.version == 1]
    found = _find(mounted)
    if first and len({parent.mechanism.name for parent in found.parents}) > 1:
        alone = _find(tuple(first))
        if alone.controls >= found.controls & BOUNDING:
            return alone
    return found


def _find(mounted: tuple[Hierarchy, ...]) -> Cgroups:
    parents: list[Parent] = []
    problems: list[str] = []
    for hierarchy in mounted:
        mechanism = Cgroup2() if hierarchy.version == 2 else Cgroup1(hierarchy.controllers)  # noqa: PLR2004 - its number
        done_otherwise = _done_by_autogroups(hierarchy)
        for folder in hierarchy.folders:
            have = frozenset().union(*(each.controls for each in parents))
            given = _tried(folder, mechanism, mechanism.offered(folder) - have - done_otherwise, problems)
            if given:
                sweep(folder, mechanism)
                parents.append(Parent(folder, mechanism, given, hierarchy.folders[0]))
                break
    return Cgroups(tuple(parents), tuple(problems))


def _done_by_autogroups(hierarchy: Hierarchy) -> frozenset[Control]:
    """An equal share, where the scheduler gives one to each session (sched(7)), as each sandbox is.

    It does so for processes in the root of the hierarchy alone, which has files that no other folder has, or lacks some
    that all others have. A leaf would do the same once more, which costs each wake-up of a process a microsecond.
    """
    own = hierarchy.folders[0]
    try:
        enabled = read("/proc/sys/kernel/sched_autogroup_enabled").strip() == b"1"
    except OSError:
        enabled = False
    is_root = Path(own, "release_agent").exists() if hierarchy.version == 1 else not Path(own, "cgroup.events").exists()
    return frozenset({Control.SHARE}) if enabled and is_root else frozenset()


def _tried(folder: str, mechanism: Mechanism, wanted: frozenset[Control], problems: list[str]) -> frozenset[Control]:
    """Those of the wanted controls that really work in a leaf of this folder, with a process in it."""
    works: set[Control] = set()
    if not wanted:
        return frozenset()
    for control in sorted(wanted):
        try:
            mechanism.enable(folder, frozenset({control}))
        except OSError as error:
            problems.append(f"{control} in {folder}: {error.strerror}")
            wanted -= {control}
    leaf = f"{folder}/{new_name()}"
    try:
        os.mkdir(leaf)  # noqa: PTH102 - plain text paths here
        with _process() as process:
            write(f"{leaf}/cgroup.procs", str(process.pid))
            if members(leaf) != [process.pid]:
                problems.append(f"{folder}: a process that was put into a leaf isn't there")
                wanted = frozenset()
            for control in sorted(wanted, key=lambda each: each is Control.KILL):  # at last, since it ends the process
                try:
                    if _works(mechanism, leaf, control, process):
                        works.add(control)
                    else:
                        problems.append(f"{control} in {folder}: it doesn't do what it was told")
                except (OSError, ValueError) as error:
                    problems.append(f"{control} in {folder}: {error}")
    except OSError as error:
        problems.append(f"{folder}: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(leaf)  # noqa: PTH106 - plain text paths here
    return frozenset(works)


def _works(mechanism: Mechanism, leaf: str, control: Control, process: subprocess.Popen[bytes]) -> bool:
    def number(reading: Reading) -> int:
        return reading.number(read(f"{leaf}/{reading.name}"))

    if control is Control.MEMORY:
        mechanism.limit_memory(leaf, _TRIED_MEMORY_BYTES)
        return mechanism.memory_limit(leaf) == _TRIED_MEMORY_BYTES and number(mechanism.oom_kills) == 0
    if control is Control.PROCESSES:
        mechanism.limit_processes(leaf, _TRIED_PROCESSES)
        return mechanism.processes_limit(leaf) == _TRIED_PROCESSES and number(mechanism.processes) >= 1
    if control is Control.TIME:
        return number(mechanism.time) >= 0
    if control is Control.KILL:
        mechanism.kill(leaf)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_END_S) == -signal.SIGKILL
        return False
    return True


@contextlib.contextmanager
def _process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, to be put into a leaf. What it is doesn't matter: it is moved before it has begun."""
    command = [stage_interpreter(), "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={}, cwd="/") as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait(_END_S)
