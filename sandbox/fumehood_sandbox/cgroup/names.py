"""Names of leaves and of owners' folders. Each says whose it is, so that what a killed sidecar left can be removed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import select
import signal
from collections.abc import Mapping

from fumehood_sandbox.cgroup.version import CgroupVersion, members
from fumehood_sandbox.kernel.pidfds import open_pidfd

_PREFIX = "fumehood"
_DIGITS = 16
_NAME = re.compile(rf"{_PREFIX}-(\d+)-([0-9a-f]{{{_DIGITS}}})-[0-9a-f]{{{_DIGITS}}}")
_START_TIME_FIELD = 19
"""Of /proc/PID/stat, counted after the name: field 22 of proc_pid_stat(5)."""
_END_S = 10.0
"""For the death of what was killed; milliseconds, but for a process that hangs in the kernel."""


def new_name() -> str:
    """A name that no other leaf has: PID namespace, owner, a random number.

    The namespace belongs to it, because sidecars in several containers may see one hierarchy and have one number.
    Whoever is in the leaf reads its name in /proc/self/cgroup: so it tells neither how many leaves there were nor, but
    to somebody who tries all processes and times of start, which process made it.
    """
    return f"{_own_prefix(os.getpid())}-{os.urandom(_DIGITS // 2).hex()}"


def sweep(folders: Mapping[str, CgroupVersion]) -> None:
    """Remove the leaves of processes that are gone, and kill what is still in them.

    That is a child of bubblewrap's which waits for ever, because bubblewrap and the launcher were killed after it was
    forked and before it had asked to die with its parent.
    """
    with contextlib.suppress(OSError):
        own = _own_namespace()
        leaves = [(folder, match) for folder in folders for match in _leaves_in(folder) if match[1] == own]
        # Looked up after the leaves, so that the owner of each is among them if he lives. Once for all folders: with
        # many processes it takes longer than everything else that is done here.
        alive = {_owner(own, int(pid)) for pid in os.listdir("/proc") if pid.isdigit()} if leaves else set()  # noqa: PTH208 - names alone
        for folder, match in leaves:
            if match[2] not in alive:
                with contextlib.suppress(OSError):
                    _remove(f"{folder}/{match[0]}", folders[folder])


def _leaves_in(folder: str) -> list[re.Match[str]]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - likewise
    except OSError:
        return []
    return [match for match in map(_NAME.fullmatch, names) if match]


def _remove(folder: str, version: CgroupVersion) -> None:
    """Remove a leaf, or the folder of an owner with all of its leaves."""
    for match in _leaves_in(folder):
        with contextlib.suppress(OSError):
            _remove_leaf(f"{folder}/{match[0]}", version)
    _remove_leaf(folder, version)


def _remove_leaf(leaf: str, version: CgroupVersion) -> None:
    pidfds = []
    for pid in members(leaf):
        with contextlib.suppress(ProcessLookupError):
            pidfds.append(open_pidfd(pid))
            # By its number: the version 2 leaf may lack what version 1 has, and the other way round.
            os.kill(pid, signal.SIGKILL)
    if pidfds:
        with contextlib.suppress(OSError):
            version.kill(leaf)
    for pidfd in pidfds:
        select.select([pidfd], [], [], _END_S)
        os.close(pidfd)
    os.rmdir(leaf)  # noqa: PTH106 - plain text paths here


@functools.lru_cache(maxsize=1)
def _own_prefix(pid: int) -> str:
    """What the names of this process's leaves have in common. A fork is another process."""
    namespace = _own_namespace()
    return f"{_PREFIX}-{namespace}-{_owner(namespace, pid)}"


def _owner(namespace: str, pid: int) -> str:
    """What stands for a process in the names of its leaves. No process has that of one that is gone."""
    return hashlib.sha256(f"{namespace} {pid} {_started(pid)}".encode()).hexdigest()[:_DIGITS]


def _own_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - plain text paths here


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks. Empty when it is gone.

    Raises:
        OSError: it can't be told. With no descriptor left, nobody may be taken for dead: `sweep` kills.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - plain text paths here
            return stream.read().rpartition(b")")[2].split()[_START_TIME_FIELD].decode()
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return ""
