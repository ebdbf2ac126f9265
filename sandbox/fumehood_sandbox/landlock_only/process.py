"""A process group under a supervisor, ended by a signal to the whole group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from fumehood_sandbox.kernel.pidfds import (
    descendants,
    ends_within,
    open_child_pidfd,
    open_pidfd,
    reap,
    shell_status,
    terminate_processes,
)
from fumehood_sandbox.landlock_only.path_view import PathView, discard
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.receipt import Receipt

_REAP_TIMEOUT_S = 10.0
"""The supervisor ends the group in milliseconds and removes the scratch folder within 5 s."""
_TO_THE_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9): the group is named by its leader, so its number can't be anybody else's."""


class ProcessGroup(SandboxedProcess):
    """A sandboxed process tree that is one process group, which nothing in it can leave.

    `pid` and `init_pid` are the supervisor's: it exits with the program's status once everybody in the group is dead.
    """

    def __init__(
        self,
        supervisor: subprocess.Popen[bytes],
        leader_pidfd: int | None,
        receipt: Receipt,
        fds: tuple[int, int, int],
        view: PathView,
    ) -> None:
        """Take over the supervisor, the group, the ends of the pipes and the folders.

        Raises:
            OSError: there is no descriptor left to hold the supervisor by. The ends of the pipes are closed.
        """
        self._supervisor = supervisor
        self._leader_pidfd = leader_pidfd
        self._pidfd = open_child_pidfd(supervisor, fds)
        self._view = view
        self._closed = False
        self.pid = self.init_pid = supervisor.pid
        self.receipt = receipt
        self.leaf = None
        self.relay = None
        self.stdin, self.stdout, self.stderr = fds

    def fileno(self) -> int:
        """The supervisor's pidfd."""
        return self._pidfd

    def pidfds(self) -> tuple[int, ...]:
        """The supervisor's: it ends when everybody has."""
        return (self._pidfd,)

    def poll(self) -> int | None:
        """The exit status, or None while it runs. 128 + n stands for death by signal n, as in a shell."""
        return shell_status(self._supervisor.poll())

    def wait(self, timeout_s: float) -> int:
        """Block until the program ends and return its exit status.

        Raises:
            TimeoutError: it still runs.
        """
        if self._closed or ends_within(self._pidfd, timeout_s):
            return shell_status(self._supervisor.wait(_REAP_TIMEOUT_S))
        raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s")

    def pids(self) -> list[int]:
        """Every process of the program, as seen from outside. Empty after the end."""
        return list(descendants(self.pid)) if self.poll() is None else []

    def terminate(self) -> None:
        """Send SIGTERM to every process of the program. One that ignores it stays. Nothing happens after the end."""
        terminate_processes(self.pids)

    def kill(self) -> None:
        """Kill the whole group at once: the kernel lets nobody fork out of it meanwhile. Idempotent."""
        if self._closed or self._leader_pidfd is None:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._leader_pidfd, signal.SIGKILL, None, _TO_THE_GROUP)

    def close(self) -> None:
        """Kill the group, wait for the supervisor's end, close the descriptors, remove the folders. Idempotent."""
        if self._closed:
            return
        self.kill()
        with contextlib.suppress(TimeoutError):
            self.wait(_REAP_TIMEOUT_S)
        if self._leader_pidfd is not None:
            reap(self._leader_pidfd, _REAP_TIMEOUT_S)
        self._closed = True
        for fd in (self._pidfd, self._leader_pidfd, self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        discard_left(self._view)


def leader_pidfd(leader: int, supervisor: int) -> int | None:
    """Hold the leader, unless it has ended and its number is somebody else's: then the supervisor has ended all.

    Raises:
        OSError: there is no descriptor left to hold it by, or to look at it. Without a hold nothing would end it later.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), contextlib.ExitStack() as stack:
        pidfd = open_pidfd(leader)
        stack.callback(os.close, pidfd)
        status = Path(f"/proc/{leader}/status").read_text(encoding="utf-8", errors="replace")
        if f"\nPPid:\t{supervisor}\n" in status:
            stack.pop_all()
            return pidfd
    return None


def discard_left(view: PathView) -> None:
    """Remove the folders that a supervisor left which was killed before it could."""
    with contextlib.suppress(OSError):
        if Path(view.base).exists():
            discard(view.base, view.scratch, view.links)
