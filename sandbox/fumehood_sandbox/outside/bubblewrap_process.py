"""A sandboxed process that runs: its ends of the pipes, its end, and how to bring it about."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, overload

from fumehood_sandbox.cgroup import Leaf
from fumehood_sandbox.receipt import Receipt

_REAP_TIMEOUT_S = 10.0
"""After SIGKILL to pid 1 a namespace dies as fast as its memory can be freed; this bounds a machine that hangs."""
_SIGNAL_BASE = 128


class SandboxedProcess:
    """One sandboxed process tree. Owned: close it, or use it as a context manager.

    Not for use from several threads at a time. `close` may come at any moment, and again.
    """

    def __init__(
        self,
        launcher: subprocess.Popen[bytes],
        init_pid: int,
        init_pidfd: int | None,
        receipt: Receipt,
        fds: tuple[int, int, int],
        *,
        leaf: Leaf | None,
        relay: socket.socket | None = None,
    ) -> None:
        """Take over the process, its namespace's first, the descriptors and the leaf. Made by `launch` alone."""
        self._launcher = launcher
        self._init_pidfd = init_pidfd
        try:
            self._pidfd = os.pidfd_open(launcher.pid)
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        self._closed = False
        self.pid = launcher.pid
        """bubblewrap's process id. Its exit is the program's."""
        self.init_pid = init_pid
        """Process id, as seen from outside, of pid 1 of the namespace. Only meaningful until the end."""
        self.receipt = receipt
        """What holds the process."""
        self.leaf = leaf
        """Its cgroup, for reading. None where there is none. It stops reading with `close`, which discards it."""
        self.relay = relay
        """A socket that listens inside, where the policy asks for a relay: accept what the program connects to it.

        Non-blocking. Closed by `close`, unless whoever serves it has taken it and put None in its place.
        """
        self.stdin, self.stdout, self.stderr = fds
        """This side's ends of the program's pipes: blocking, close-on-exec, closed by `close`."""

    def fileno(self) -> int:
        """A pidfd that becomes readable when the program has ended: for select, poll and event loops."""
        return self._pidfd

    def pidfds(self) -> tuple[int, ...]:
        """Each becomes readable when what it stands for has ended; with all of them the whole tree has. Not to close.

        The program's own comes first. Of pid 1 of the namespace there is none if it ended before it could be held.
        """
        return (self._pidfd,) if self._init_pidfd is None else (self._pidfd, self._init_pidfd)

    def poll(self) -> int | None:
        """The exit status, or None while it runs. 128 + n stands for death by signal n, as in a shell."""
        return _shell_status(self._launcher.poll())

    def wait(self, timeout_s: float) -> int:
        """Block until the program ends and return its exit status.

        Raises:
            TimeoutError: it still runs.
        """
        # Not Popen.wait, which with a bound sleeps and looks again.
        if self._closed or ends_within(self._pidfd, timeout_s):
            return _shell_status(self._launcher.wait(_REAP_TIMEOUT_S))
        raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s")

    @property
    def exit_description(self) -> str:
        """How it ended, for people; "running" before that.

        The sandbox's pid 1 reports a death by signal as status 128 + n, so a program that exits with such a status
        itself is described by the signal.
        """
        status = self.poll()
        if status is None:
            return "running"
        number = self.exit_signal
        return f"exited with status {status}" if number is None else f"killed by {number.name}"

    @property
    def exit_signal(self) -> signal.Signals | None:
        """The signal that ended it, with the same reservation. None while it runs, and when it exited."""
        status = self.poll()
        with contextlib.suppress(ValueError):
            if status is not None and status > _SIGNAL_BASE:
                return signal.Signals(status - _SIGNAL_BASE)
        return None

    def pids(self) -> list[int]:
        """Every process of the program, as seen from outside. Empty after the end."""
        if self.poll() is not None:
            return []
        if self.leaf is not None:
            return self.leaf.members(but=(self.pid, self.init_pid))
        return list(descendants(self.init_pid))

    def terminate(self) -> None:
        """Send SIGTERM to every process of the program. Who ignores it stays. Nothing happens after the end."""
        held: list[tuple[int, int]] = []
        try:
            for pid in self.pids():
                try:
                    held.append((pid, os.pidfd_open(pid)))
                except ProcessLookupError:
                    continue
                except OSError:  # more processes than this one may have descriptors: the first of them are asked
                    break
            # A number may have been given away between the listing and now; the pidfds fix them, so ask again.
            still_there = set(self.pids())
            for pid, pidfd in held:
                if pid in still_there:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        finally:
            for _, pidfd in held:
                os.close(pidfd)

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
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_pidfd, signal.SIGKILL)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@overload
def _shell_status(status: int) -> int: ...


@overload
def _shell_status(status: int | None) -> int | None: ...


def _shell_status(status: int | None) -> int | None:
    """128 + n where bubblewrap itself was killed by signal n, as it exits with when the program was."""
    return status if status is None or status >= 0 else _SIGNAL_BASE - status


def reap(pidfd: int, timeout_s: float) -> None:
    """Wait until a process has ended, and reap it if it has become this one's child.

    That happens to pid 1 of a namespace when bubblewrap ends first and the launcher is pid 1 of its container, or a
    subreaper: nobody else would reap it.
    """
    ends_within(pidfd, timeout_s)
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def ends_within(pidfd: int, timeout_s: float) -> bool:
    """Wait until a process has ended, and say whether it has."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def descendants(pid: int) -> Iterator[int]:
    """Every process below this one. The kernel lists a thread's children; those of dead parents hang on pid 1."""
    for thread in _entries(f"/proc/{pid}/task"):
        try:
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from descendants(int(child))


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []
