"""A process tree in bubblewrap's namespaces, ended by a kill of the PID namespace's first process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess

from fumehood_sandbox.cgroup import Leaf
from fumehood_sandbox.kernel.pidfds import (
    descendants,
    ends_within,
    kill_process,
    open_child_pidfd,
    reap,
    shell_status,
    terminate_processes,
)
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.receipt import Receipt

_REAP_TIMEOUT_S = 10.0
"""After SIGKILL to pid 1 a namespace dies as fast as its memory can be freed; this bounds a machine that hangs."""


class BubblewrapProcess(SandboxedProcess):
    """A process that bubblewrap launched: `pid` is bubblewrap's, `init_pid` that of pid 1 of the namespace."""

    def __init__(
        self,
        bubblewrap: subprocess.Popen[bytes],
        init_pid: int,
        init_pidfd: int | None,
        receipt: Receipt,
        fds: tuple[int, int, int],
        *,
        leaf: Leaf | None,
        relay: socket.socket | None = None,
    ) -> None:
        """Take over bubblewrap, pid 1 of its namespace, the ends of the pipes, the leaf and the relay's socket.

        Raises:
            OSError: there is no descriptor left to hold bubblewrap by. The ends of the pipes are closed.
        """
        self._bubblewrap = bubblewrap
        self._init_pidfd = init_pidfd
        self._pidfd = open_child_pidfd(bubblewrap, fds)
        self._closed = False
        self.pid = bubblewrap.pid
        self.init_pid = init_pid
        self.receipt = receipt
        self.leaf = leaf
        self.relay = relay
        self.stdin, self.stdout, self.stderr = fds

    def fileno(self) -> int:
        """Bubblewrap's pidfd, which ends with the program."""
        return self._pidfd

    def pidfds(self) -> tuple[int, ...]:
        """bubblewrap's, and that of pid 1 of the namespace unless it ended before it could be held."""
        return (self._pidfd,) if self._init_pidfd is None else (self._pidfd, self._init_pidfd)

    def poll(self) -> int | None:
        """The exit status, or None while it runs. 128 + n stands for death by signal n, as in a shell."""
        return shell_status(self._bubblewrap.poll())

    def wait(self, timeout_s: float) -> int:
        """Block until the program ends and return its exit status.

        Raises:
            TimeoutError: it still runs.
        """
        # Not Popen.wait, which with a bound sleeps and looks again.
        if self._closed or ends_within(self._pidfd, timeout_s):
            return shell_status(self._bubblewrap.wait(_REAP_TIMEOUT_S))
        raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s")

    def pids(self) -> list[int]:
        """Every process of the program, as seen from outside. Empty after the end."""
        if self.poll() is not None:
            return []
        if self.leaf is not None:
            return self.leaf.members(but=(self.pid, self.init_pid))
        return list(descendants(self.init_pid))

    def terminate(self) -> None:
        """Send SIGTERM to every process of the program. One that ignores it stays. Nothing happens after the end."""
        terminate_processes(self.pids)

    def kill(self) -> None:
        """Kill the whole tree: SIGKILL to pid 1 of the namespace, and the kernel kills the rest. Idempotent.

        The leaf is killed first, where that is one write: then no process has to be told of another's death before it
        dies itself.
        """
        if self._closed:
            return
        if self.leaf is not None:
            self.leaf.kill_at_once()
        if self._init_pidfd is not None:
            kill_process(self._init_pidfd)

    def close(self) -> None:
        """Kill the tree, wait for its end (milliseconds, at most 10 s), close the descriptors. Idempotent."""
        if self._closed:
            return
        self.kill()
        with contextlib.suppress(TimeoutError):
            self.wait(_REAP_TIMEOUT_S)
        # bubblewrap ends with the program, and its death kills pid 1 with what is left; wait for that as well.
        if self._init_pidfd is not None:
            reap(self._init_pidfd, _REAP_TIMEOUT_S)
        self._closed = True
        if self.leaf is not None:
            self.leaf.discard()
        if self.relay is not None:
            self.relay.close()
        for fd in (self._pidfd, self._init_pidfd, self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
