"""The making of leaves, in the folders that were found for them, and the removal of those that were busy."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from dataclasses import dataclass

from fumehood_sandbox.cgroup.cgroup1 import Cgroup1
from fumehood_sandbox.cgroup.joining_thread import JoiningThread
from fumehood_sandbox.cgroup.leaf import Leaf
from fumehood_sandbox.cgroup.names import new_name
from fumehood_sandbox.cgroup.owner_folders import OwnerFolders
from fumehood_sandbox.cgroup.version import CgroupVersion, Control
from fumehood_sandbox.errors import LaunchError
from fumehood_sandbox.limits import Limits

SPARE_PROCESSES = 2
"""bubblewrap and pid 1 of its namespace: in the leaf, and not the program's."""
BOUNDING = frozenset({Control.MEMORY, Control.PROCESSES, Control.TIME})
"""Without one of these something weaker has to stand in."""
_KILLS_ALONE = frozenset({Control.KILL})


@dataclass(frozen=True, slots=True)
class Parent:
    """A folder in which leaves can be made, and what they can do there."""

    folder: str
    version: CgroupVersion
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
        self._owner_folders = {
            parent.folder: OwnerFolders(parent.folder, functools.partial(_share, parent))
            for parent in parents
            if Control.QUOTA in parent.controls
        }
        self._left: list[Leaf] = []
        self._lock = threading.Lock()
        self._joining_thread: JoiningThread | None = None
        self._join_tried = False
        if parents:
            atexit.register(self._remove_all, os.getpid())

    @property
    def missing(self) -> tuple[Control, ...]:
        """Which of `BOUNDING` can't be had here."""
        return tuple(sorted(BOUNDING - self.controls))

    def describe(self) -> str:
        """What leaves do, and by which version: for people."""
        return ", ".join(f"{' and '.join(sorted(parent.controls))} by {parent.version.name}" for parent in self.parents)

    def leaf(self, limits: Limits, *, owner: str = "", killed_otherwise: bool = False) -> Leaf | None:
        """A new leaf with these limits, without a process. None where nothing can be had.

        All leaves of an `owner` have one share of the processors together. Without one, each has its own.
        `killed_otherwise`: its processes are ended by the end of a PID namespace, and the leaf need not be able to,
        which spares them a hierarchy where that has one of its own (version 1's freezer).

        Raises:
            LaunchError: one can't be made now, although one could be before. Nothing of it is left.
        """
        if not self.parents:
            return None
        self.remove_leftovers()
        name = new_name()
        made: dict[str, tuple[CgroupVersion, frozenset[Control]]] = {}
        try:
            for parent in self.parents:
                if killed_otherwise and parent.controls == _KILLS_ALONE:
                    continue
                folder = f"{self._parent_folder(parent, owner)}/{name}"
                os.mkdir(folder)  # noqa: PTH102 - plain text paths here
                made[folder] = (parent.version, parent.controls)
                if Control.MEMORY in parent.controls:
                    parent.version.limit_memory(folder, limits.memory_bytes)
                if Control.PROCESSES in parent.controls:
                    parent.version.limit_processes(folder, limits.processes + SPARE_PROCESSES)
                if Control.QUOTA in parent.controls:
                    parent.version.limit_cpus(folder, limits.cpus)
                    if not owner:
                        parent.version.lower_weight(folder)
            return Leaf(made, spare_processes=SPARE_PROCESSES, retry=self._keep)
        except OSError as error:
            for folder in made:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)  # noqa: PTH106 - plain text paths here
            path = str(error.filename or "")
            raise LaunchError("cgroup", error.strerror or "", path=path, errno=error.errno or 0) from error

    def _parent_folder(self, parent: Parent, owner: str) -> str:
        folders = self._owner_folders.get(parent.folder)
        return folders.folder(owner) if owner and folders is not None else parent.folder

    @property
    def joining_thread(self) -> JoiningThread | None:
        """What starts processes inside a leaf. None where a thread can't join one: then they are moved."""
        # Not a cached_property: Python 3.11's keeps a lock meanwhile, for which the thread that is tried may wait.
        if not self._join_tried:
            self._joining_thread = self._find_joining_thread()
            self._join_tried = True
        return self._joining_thread

    def _find_joining_thread(self) -> JoiningThread | None:
        if not self.parents or any(parent.version.name != Cgroup1.name for parent in self.parents):
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

    def remove_leftovers(self) -> None:
        """Try again to remove what was still busy."""
        if self._left:
            with self._lock:
                self._left = [leaf for leaf in self._left if not leaf.remove()]

    def _remove_all(self, made_by: int) -> None:
        if os.getpid() != made_by:  # a fork of it, whose end is nobody else's
            return
        self.remove_leftovers()
        for folders in self._owner_folders.values():
            folders.remove()


def _share(parent: Parent, folder: str) -> None:
    """Prepare an owner's folder. At equal weight, ten plugins that compute leave the sidecar an eleventh."""
    parent.version.enable(folder, parent.controls)
    parent.version.lower_weight(folder)


NONE = Cgroups((), ("an operator's word: cgroups are off",))
"""Where no cgroup may be used."""
