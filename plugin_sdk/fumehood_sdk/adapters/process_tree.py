"""The process tree of a started program: signals to it, and its end.

As a rule the program leads a process group of its own. A sandbox without namespaces lets no process leave its group,
because it ends a plugin by that group: there this process is the subreaper (prctl(2)) of what programs leave behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_S = 1.0
"""Bound of ending orphans, which takes milliseconds. What forks for longer than this ends with the worker."""


class ProcessTree:
    """A program that runs in a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and its group."""
        # It may be gone already; kernels differ in what they answer for a group of nothing but zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def kill_and_reap(self) -> None:
        """Kill what is left, before the leader is reaped: its number may be given to another process afterwards."""
        self.send_signal(signal.SIGKILL)
        self.process.wait()


class _Subreaper:
    """Adopts the orphans of programs: the children of this process that it did not start itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: set[int] = set()
        self._is_subreaper = False

    def start_program(
        self, argv: list[str], program: str, *, stdin: int, env: Mapping[str, str] | None, cwd: str | None
    ) -> subprocess.Popen[bytes]:
        with self._lock:  # the new process is no orphan, so it must be in the set before anyone looks
            if not self._is_subreaper:
                if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
                    raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
                self._is_subreaper = True
            process = _popen(argv, program, process_group=None, stdin=stdin, env=env, cwd=cwd)
            self._started.add(process.pid)
        return process

    def reap_with_orphans(self, process: subprocess.Popen[bytes]) -> None:
        """Reap a killed program, then kill every orphan, of other calls too: no daemon outlives a call here."""
        process.wait()
        deadline = time.monotonic() + _ORPHANS_S
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


class _UngroupedTree(ProcessTree):
    """A program in this process's own group, where it may not have another."""

    def send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill_and_reap(self) -> None:
        self.send_signal(signal.SIGKILL)
        _subreaper.reap_with_orphans(self.process)


_subreaper = _Subreaper()


def start_process_tree(
    argv: list[str],
    program: str,
    *,
    stdin: int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> ProcessTree:
    """Start a program with pipes for stdout and stderr.

    Raises:
        OSError: it can't be started.
    """
    try:
        return ProcessTree(_popen(argv, program, process_group=0, stdin=stdin, env=env, cwd=cwd))
    except PermissionError:  # of setpgid(2), or of execve(2), which will say so once more
        return _UngroupedTree(_subreaper.start_program(argv, program, stdin=stdin, env=env, cwd=cwd))


def _popen(
    argv: list[str],
    program: str,
    *,
    process_group: int | None,
    stdin: int,
    env: Mapping[str, str] | None,
    cwd: str | None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        executable=program,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=process_group,
        env=env,
        cwd=cwd,
        bufsize=0,
    )
