"""Runs one program for one call: captures its output up to a limit, and ends its process tree."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping

from fumehood_sdk.adapters.process_tree import ProcessTree, start_process_tree

TERMINATE_GRACE_S = 0.5
"""Between SIGTERM and SIGKILL: half of what the sidecar gives a cancelled call by default."""
PIPE_DRAIN_S = 0.2
"""From the program's exit to the end of reading, for children that still write to the pipes that they inherited."""
STDERR_TAIL_BYTES = 8192
"""What a failed program wrote last says why it failed. As much as a line of the log holds."""
_READ_BYTES = 65536


class FinishedProgram:
    """The exit status and the captured output of a program."""

    __slots__ = ("exit_code", "stderr", "stdout", "truncated")

    def __init__(self, exit_code: int, stdout: bytes, stderr: bytes, *, truncated: bool) -> None:
        self.exit_code = exit_code
        """Its status; the negated signal's number where one ended it."""
        self.stdout = stdout
        self.stderr = stderr
        """The end of what it wrote there."""
        self.truncated = truncated
        """Whether it wrote more to stdout than was kept."""


class Wakeup:
    """Wakes a poll(2) from another thread. An eventfd(2), safe to use after it was closed."""

    __slots__ = ("_lock", "fd")

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Make the descriptor readable."""
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            os.close(self.fd)
            self.fd = -1


class Surroundings:
    """What a program is given beside its arguments."""

    __slots__ = ("environment", "folder", "stdin")

    def __init__(self, stdin: bytes | None, environment: Mapping[str, str] | None, folder: str | None) -> None:
        self.stdin = stdin
        """None: it is empty."""
        self.environment = environment
        """None: this process's own."""
        self.folder = folder
        """Its working folder. None: this process's own."""


NOTHING = Surroundings(None, None, None)


def run_program(
    argv: list[str],
    program: str,
    *,
    stdout_limit_bytes: int,
    wakeup: Wakeup,
    cancelled: Callable[[], bool],
    given: Surroundings = NOTHING,
) -> FinishedProgram:
    """Run a program to its end, and end whatever it left.

    In order: its end, or SIGTERM to the tree once `wakeup` wakes it and `cancelled` says so; SIGKILL after
    `TERMINATE_GRACE_S`; at the end SIGKILL to what is left.

    Raises:
        OSError: it can't be started.
    """
    stdin = None if given.stdin is None else _file_of(given.stdin)
    try:
        tree = start_process_tree(
            argv, program, stdin=subprocess.DEVNULL if stdin is None else stdin, env=given.environment, cwd=given.folder
        )
    finally:
        if stdin is not None:
            os.close(stdin)
    try:
        return _ProgramMonitor(tree, stdout_limit_bytes, wakeup, cancelled).wait_for_end()
    finally:
        tree.kill_and_reap()
        for stream in (tree.process.stdout, tree.process.stderr):
            if stream is not None:
                stream.close()


def _file_of(content: bytes) -> int:
    """A file in memory, read from its start: a program that doesn't read its stdin holds nobody up, as a pipe would."""
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


class _ProgramMonitor:
    """Polls one program's pipes, its pidfd and the wake-up of its cancellation."""

    def __init__(
        self, tree: ProcessTree, stdout_limit_bytes: int, wakeup: Wakeup, cancelled: Callable[[], bool]
    ) -> None:
        process = tree.process
        if process.stdout is None or process.stderr is None:
            raise OSError("the program's pipes are missing")
        self._tree = tree
        self._process = process
        self._limit_bytes = stdout_limit_bytes
        self._wakeup = wakeup
        self._cancelled = cancelled
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._stdout, self._stderr = bytearray(), bytearray()
        self._truncated = False
        self._open = {self._out, self._err}
        self._kill_at: float | None = None
        self._drain_until: float | None = None
        self._poll = select.poll()

    def wait_for_end(self) -> FinishedProgram:
        """Wait for the program's end and the ends of its pipes. Leaves it unreaped."""
        process_fd = os.pidfd_open(self._process.pid)
        try:
            for fd in (self._out, self._err, process_fd, self._wakeup.fd):
                self._poll.register(fd, select.POLLIN)
            while self._open or self._drain_until is None:
                ready = self._poll.poll(self._timeout_ms())
                if self._drain_until is not None and time.monotonic() >= self._drain_until:
                    break
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    self._tree.send_signal(signal.SIGKILL)
                    self._kill_at = None
                for fd, _ in ready:
                    if fd == process_fd:
                        self._poll.unregister(fd)
                        self._drain_until, self._kill_at = time.monotonic() + PIPE_DRAIN_S, None
                    elif fd == self._wakeup.fd:
                        self._on_wakeup()
                    else:
                        self._on_output(fd)
        finally:
            os.close(process_fd)
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        if status is None:  # only with WNOHANG
            raise OSError("the program's status is missing")
        code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return FinishedProgram(code, bytes(self._stdout), bytes(self._stderr), truncated=self._truncated)

    def _timeout_ms(self) -> float | None:
        due = [at for at in (self._kill_at, self._drain_until) if at is not None]
        return max(0.0, min(due) - time.monotonic()) * 1000 if due else None

    def _on_wakeup(self) -> None:
        self._poll.unregister(self._wakeup.fd)
        if self._cancelled() and self._drain_until is None:
            self._tree.send_signal(signal.SIGTERM)
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
