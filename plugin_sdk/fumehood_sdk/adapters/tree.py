"""A started program with all that it starts, and how to signal and to end it.

As a rule it is a process group of its own. A sandbox without namespaces lets nobody leave its group, since it is the
group that it kills: there this process becomes the parent of what programs leave behind, and ends that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_S = 1.0
"""Ending orphans takes milliseconds. What makes new ones for longer than this ends with the worker."""


class Tree:
    """A program that runs in a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and its group."""
        # It may be gone already; kernels differ in what they answer for a group of nothing but zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        """Kill what is left, before the leader is reaped: its number may belong to somebody else afterwards."""
        self.signal(signal.SIGKILL)
        self.process.wait()


class _Foundlings:
    """What this process has adopted: every child of its that it did not start itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: set[int] = set()
        self._adopts = False

    def start(self, argv: list[str], program: str) -> subprocess.Popen[bytes]:
        with self._lock:  # nobody may take the new process for an orphan before it is noted
            if not self._adopts:
                if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
                    raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
                self._adopts = True
            process = _popen(argv, program, process_group=None)
            self._started.add(process.pid)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Reap a killed program, then end every orphan, whoever's: no program's daemons outlive a call here."""
        process.wait()
        deadline = time.monotonic() + _SWEEP_S
        with self._lock:
            self._started.discard(process.pid)
            while (orphans := self._orphans()) and time.monotonic() < deadline:
                for pid in orphans:
                    os.kill(pid, signal.SIGKILL)  # a child of ours and not reaped yet, so the number is still its own
                    os.waitpid(pid, 0)

    def _orphans(self) -> set[int]:
        # The kernel gives orphans to the first thread.
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        return set(map(int, children.split())) - self._started


class _UngroupedTree(Tree):
    """A program in this process's own group."""

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        _foundlings.end(self.process)


_foundlings = _Foundlings()


def start(argv: list[str], program: str) -> Tree:
    """Start a program with pipes for stdout and stderr and an empty stdin.

    Raises:
        OSError: it can't be started.
    """
    try:
        return Tree(_popen(argv, program, process_group=0))
    except PermissionError:  # of setpgid(2), or of execve(2), which will say so once more
        return _UngroupedTree(_foundlings.start(argv, program))


def _popen(argv: list[str], program: str, *, process_group: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        executable=program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=process_group,
        bufsize=0,
    )
