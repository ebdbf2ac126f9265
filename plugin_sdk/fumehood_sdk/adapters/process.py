"""Runs one program for one call: bounded in what it says, ended with all that it started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable

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
    """Run a program to its end, and end whatever it left in its process group.

    In order: its end, or SIGTERM to the group once `bell` rings and `cancelled` says so; SIGKILL after
    `TERMINATE_GRACE_S`; at the end SIGKILL to what is left of the group, before its leader is reaped, since its number
    may belong to somebody else afterwards.

    Raises:
        OSError: it can't be started.
    """
    process = subprocess.Popen(
        argv,
        executable=program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        bufsize=0,
    )
    try:
        return _watch(process, stdout_limit_bytes, bell, cancelled)
    finally:
        _signal_group(process, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _watch(
    process: subprocess.Popen[bytes], stdout_limit_bytes: int, bell: Bell, cancelled: Callable[[], bool]
) -> Finished:
    if process.stdout is None or process.stderr is None:
        raise OSError("the program's pipes are missing")
    out, err = process.stdout.fileno(), process.stderr.fileno()
    stdout, stderr = bytearray(), bytearray()
    truncated = False
    poll = select.poll()
    process_fd = os.pidfd_open(process.pid)
    try:
        open_fds = {out, err}
        for fd in (out, err, process_fd, bell.fd):
            poll.register(fd, select.POLLIN)
        kill_at: float | None = None
        linger_until: float | None = None
        while open_fds or linger_until is None:
            due = [at for at in (kill_at, linger_until) if at is not None]
            timeout_s = max(0.0, min(due) - time.monotonic()) if due else None
            ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
            if linger_until is not None and time.monotonic() >= linger_until:
                break
            if kill_at is not None and time.monotonic() >= kill_at:
                _signal_group(process, signal.SIGKILL)
                kill_at = None
            for fd, _ in ready:
                if fd == process_fd:
                    poll.unregister(fd)
                    linger_until, kill_at = time.monotonic() + LINGER_S, None
                elif fd == bell.fd:
                    poll.unregister(fd)
                    if cancelled() and linger_until is None:
                        _signal_group(process, signal.SIGTERM)
                        kill_at = time.monotonic() + TERMINATE_GRACE_S
                else:
                    chunk = os.read(fd, _READ_BYTES)
                    if not chunk:
                        poll.unregister(fd)
                        open_fds.discard(fd)
                    elif fd == out:
                        # What is over the limit is read and dropped: a program that can't write might never end.
                        truncated = truncated or len(stdout) + len(chunk) > stdout_limit_bytes
                        stdout += chunk[: stdout_limit_bytes - len(stdout)]
                    else:
                        stderr += chunk
                        del stderr[:-STDERR_TAIL_BYTES]
    finally:
        os.close(process_fd)
    # Not reaped here: the group is killed first.
    status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    code = 0 if status is None else status.si_status
    if status is not None and status.si_code != os.CLD_EXITED:
        code = -code
    return Finished(code, bytes(stdout), bytes(stderr), truncated=truncated)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it is gone; a group of zombies alone answers with EPERM in some kernels
