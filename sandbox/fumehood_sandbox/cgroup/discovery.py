"""Cgroup discovery: finds by trying where leaves can be made.

For each hierarchy, version 2 first, and each folder that may be ours: make a leaf, put a process into it, set the
limits and read them back. What works is kept; what an earlier hierarchy gives already is not asked of a later one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fumehood_sandbox.cgroup.cgroup1 import Cgroup1
from fumehood_sandbox.cgroup.cgroup2 import Cgroup2
from fumehood_sandbox.cgroup.hierarchy import Hierarchy, hierarchies
from fumehood_sandbox.cgroup.leaves import BOUNDING, Cgroups, Parent
from fumehood_sandbox.cgroup.names import new_name, sweep
from fumehood_sandbox.cgroup.version import CgroupVersion, Control, Reading, members, read, write
from fumehood_sandbox.interpreter import stage_interpreter

_TRIED_MEMORY_BYTES = 64 * 1024 * 1024
_TRIED_PROCESSES = 64
_TRIED_CPUS = 1
_END_S = 10.0
"""For the end of the process that was used for trying; it is killed."""


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
    found = best = _find(mounted)
    if first and len({parent.version.name for parent in found.parents}) > 1:
        alone = _find(tuple(first))
        if alone.controls >= found.controls & BOUNDING:
            best = alone
    sweep({parent.folder: parent.version for parent in (*found.parents, *best.parents)})
    return best


def _find(mounted: tuple[Hierarchy, ...]) -> Cgroups:
    parents: list[Parent] = []
    problems: list[str] = []
    for hierarchy in mounted:
        version = Cgroup2() if hierarchy.version == 2 else Cgroup1(hierarchy.controllers)  # noqa: PLR2004 - its number
        done_otherwise = _done_by_autogroups(hierarchy)
        for folder in hierarchy.folders:
            have = frozenset().union(*(each.controls for each in parents))
            given = _tried(folder, version, version.offered(folder) - have - done_otherwise, problems)
            if given:
                parents.append(Parent(folder, version, given, hierarchy.folders[0]))
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


def _tried(folder: str, version: CgroupVersion, wanted: frozenset[Control], problems: list[str]) -> frozenset[Control]:
    """Those of the wanted controls that really work in a leaf of this folder, with a process in it."""
    works: set[Control] = set()
    if not wanted:
        return frozenset()
    for control in sorted(wanted):
        try:
            version.enable(folder, frozenset({control}))
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
                    if _works(version, leaf, control, process):
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


def _works(version: CgroupVersion, leaf: str, control: Control, process: subprocess.Popen[bytes]) -> bool:
    def number(reading: Reading) -> int:
        return reading.number(read(f"{leaf}/{reading.name}"))

    if control is Control.MEMORY:
        version.limit_memory(leaf, _TRIED_MEMORY_BYTES)
        return version.memory_limit(leaf) == _TRIED_MEMORY_BYTES and number(version.oom_kills) == 0
    if control is Control.PROCESSES:
        version.limit_processes(leaf, _TRIED_PROCESSES)
        return version.processes_limit(leaf) == _TRIED_PROCESSES and number(version.processes) >= 1
    if control is Control.QUOTA:
        version.limit_cpus(leaf, _TRIED_CPUS)
        return version.cpus_limit(leaf) == _TRIED_CPUS
    if control is Control.KILL:
        version.kill(leaf)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_END_S) == -signal.SIGKILL
        return False
    return control is not Control.TIME or number(version.time) >= 0


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
