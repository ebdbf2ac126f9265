"""Names of leaves. Each says whose it is, so that what a sidecar left behind when it was killed can be removed."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal

from fumehood_sandbox.cgroup.mechanism import Mechanism, members

_PREFIX = "fumehood"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-(\d+)-\d+")
_START_TIME_FIELD = 19
"""Of /proc/PID/stat, counted after the name: field 22 of proc_pid_stat(5)."""
_END_S = 10.0
"""For the death of what was killed; milliseconds, but for a process that hangs in the kernel."""
_numbers = itertools.count(1)


def new_name() -> str:
    """A name that no other leaf has: PID namespace, process, its start, a number.

    The namespace belongs to it, because sidecars in several containers may see one hierarchy and have one number.
    """
    return f"{_PREFIX}-{_own_namespace()}-{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"


def sweep(folder: str, mechanism: Mechanism) -> None:
    """Remove the leaves of processes that are gone, and kill what is still in them.

    That is a child of bubblewrap's which waits for ever, because both were killed in the moment between its birth and
    the one in which it asks to die with its parent.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - names alone
            match = _NAME.fullmatch(name)
            if match and match[1] == _own_namespace() and _started(int(match[2])) != match[3]:
                with contextlib.suppress(OSError):
                    _remove(f"{folder}/{name}", mechanism)


def _remove(leaf: str, mechanism: Mechanism) -> None:
    pidfds = []
    for pid in members(leaf):
        with contextlib.suppress(ProcessLookupError):
            pidfds.append(os.pidfd_open(pid))
            # By its number: the version 2 leaf may lack what version 1 has, and the other way round.
            os.kill(pid, signal.SIGKILL)
    if pidfds:
        with contextlib.suppress(OSError):
            mechanism.kill(leaf)
    for pidfd in pidfds:
        select.select([pidfd], [], [], _END_S)
        os.close(pidfd)
    os.rmdir(leaf)  # noqa: PTH106 - plain text paths here


def _own_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 - plain text paths here


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks. Empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - plain text paths here
            return stream.read().rpartition(b")")[2].split()[_START_TIME_FIELD].decode()
    except (OSError, IndexError):
        return ""
