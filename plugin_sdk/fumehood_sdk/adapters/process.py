"""Runs one program for one call: bounded in what it says, ended with all that it started."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable

from fumehood_sdk.adapters.tree import Tree, start

TERMINATE_GRACE_S = 0.5
"""Between SIGTERM and SIGKILL: half of what the sidecar gives a cancelled call by default."""
LINGER_S = 0.2
"""After the program's end, for what its children still write to the pipes that they inherited."""
STDERR_TAIL_BYTES = 8192
"""The last words of a program say why it failed. As much as a line of the log holds."""
_READ_BYTES = 65536


class Finished:
    """How a program ended."""

    __slots__ = ("exit_code", "stderr", "stdout", "truncated")

    def __init__(self, exit_code: int, stdout: bytes, stderr: bytes, *, truncated: bool) -> None:
        self.exit_code = exit_code
        """Its status; the negated signal's number where one ended it."""
        self.stdout = stdout
        self.stderr = stderr
        """The end of what it wrote there."""
        self.truncated = truncated
        """Whether it wrote more to stdout than was kept."""


class Bell:
    """Wakes a poll(2) from another thread. Safe to ring after it was closed."""

    __slots__ = ("_lock", "fd")

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Wake the one that polls."""
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            os.close(self.fd)
            self.fd = -1


def run(
    argv: list[str], program: str, *, stdout_limit_bytes: int, bell: Bell, cancelled: Callable[[], bool]
) -> Finished:
    """Run a program to its end, and end whatever it left.

    In order: its end, or SIGTERM to the tree once `bell` rings and `cancelled` says so; SIGKILL after
    `TERMINATE_GRACE_S`; at the end SIGKILL to what is left.

    Raises:
        OSError: it can't be started.
    """
    tree = start(argv, program)
    try:
        return _Watch(tree, stdout_limit_bytes, bell, cancelled).run()
    finally:
        tree.end()
        for stream in (tree.process.stdout, tree.process.stderr):
            if stream is not None:
                stream.close()


class _Watch:
    """Looks after one program: what it writes, its end, and whether its end is asked for."""

    def __init__(self, tree: Tree, stdout_limit_bytes: int, bell: Bell, cancelled: Callable[[], bool]) -> None:
        process = tree.process
        if process.stdout is None or process.stderr is None:
            raise OSError("the program's pipes are missing")
        self._tree = tree
        self._process = process
        self._limit_bytes = stdout_limit_bytes
        self._bell = bell
        self._cancelled = cancelled
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._stdout, self._stderr = bytearray(), bytearray()
        self._truncated = False
        self._open = {self._out, self._err}
        self._kill_at: float | None = None
        self._linger_until: float | None = None
        self._poll = select.poll()

    def run(self) -> Finished:
        """Wait for the program's end and the ends of its pipes. Leaves it unreaped."""
        process_fd = os.pidfd_open(self._process.pid)
        try:
            for fd in (self._out, self._err, process_fd, self._bell.fd):
                self._poll.register(fd, select.POLLIN)
            while self._open or self._linger_until is None:
                ready = self._poll.poll(self._timeout_ms())
                if self._linger_until is not None and time.monotonic() >= self._linger_until:
                    break
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    self._tree.signal(signal.SIGKILL)
                    self._kill_at = None
                for fd, _ in ready:
                    if fd == process_fd:
                        self._poll.unregister(fd)
                        self._linger_until, self._kill_at = time.monotonic() + LINGER_S, None
                    elif fd == self._bell.fd:
                        self._on_bell()
                    else:
                        self._on_output(fd)
        finally:
            os.close(process_fd)
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        if status is None:  # only with WNOHANG
            raise OSError("the program's status is missing")
        code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return Finished(code, bytes(self._stdout), bytes(self._stderr), truncated=self._truncated)

    def _timeout_ms(self) -> float | None:
        due = [at for at in (self._kill_at, self._linger_until) if at is not None]
        return max(0.0, min(due) - time.monotonic()) * 1000 if due else None

    def _on_bell(self) -> None:
        self._poll.unregister(self._bell.fd)
        if self._cancelled() and self._linger_until is None:
            self._tree.signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + TERMINATE_GRACE_S

    def _on_output(self, fd: int) -> None:
        chunk = os.read(fd, _READ_BYTES)
        if not chunk:
            self._poll.unregister(fd)
            self._open.discard(fd)
        elif fd == self._out:
            # What is over the limit is read and dropped: a program that can't write might never end.
            self._truncated = self._truncated or len(self._stdout) + len(chunk) > self._limit_bytes
            self._stdout += chunk[: self._limit_bytes - len(self._stdout)]
        else:
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]
