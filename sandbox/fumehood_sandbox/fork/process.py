"""A process that a zygote forked, for one call."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct

from fumehood_sandbox.cgroup import Leaf
from fumehood_sandbox.kernel.constants import SIGNALLED_STATUS
from fumehood_sandbox.kernel.pidfds import descendants, ends_within, kill_process, terminate_processes
from fumehood_sandbox.process import SandboxedProcess
from fumehood_sandbox.receipt import Receipt

# Source: include/uapi/linux/pidfd.h, from Linux 6.15 on.
_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_INFO_BYTES = 64
_EXIT_CODE_OFFSET = 60
_END_TIMEOUT_S = 10.0
"""After SIGKILL a tree dies as fast as its memory can be freed; this bounds a machine that hangs."""
_UNKNOWN_STATUS = 255


class ForkedProcess(SandboxedProcess):
    """A zygote's child: pid 1 of a PID namespace of its own, so that its death is that of everything it started.

    Not this process's own child: the kernel reaps it when it ends. How it ended is known from Linux 6.15 on.
    """

    def __init__(self, pid: int, fds: tuple[int, int, int, int], receipt: Receipt, *, leaf: Leaf | None = None) -> None:
        """Take over a pidfd and this side's ends of its pipes. Made by `ForkServer` alone."""
        self._pidfd, self.stdin, self.stdout, self.stderr = fds
        self._closed = False
        self._status: int | None = None
        self.pid = self.init_pid = pid
        self.receipt = receipt
        self.leaf = leaf
        self.relay = None

    def fileno(self) -> int:
        """Its pidfd."""
        return self._pidfd

    def pidfds(self) -> tuple[int, ...]:
        """Its own: it is pid 1 itself."""
        return (self._pidfd,)

    def pids(self) -> list[int]:
        """Every process of the call, as seen from outside, the first one first. Empty after the end."""
        return [self.pid, *descendants(self.pid)] if self.poll() is None else []

    def poll(self) -> int | None:
        """The exit status, or None while it runs. 128 + n stands for death by signal n; 255 also for an unknown one."""
        if self._status is None and not self._closed and ends_within(self._pidfd, 0.0):
            self._status = _exit_status(self._pidfd)
        return self._status

    def wait(self, timeout_s: float) -> int:
        """Block until it ends and return its exit status.

        Raises:
            TimeoutError: it still runs.
        """
        if not self._closed and not ends_within(self._pidfd, timeout_s):
            raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s")
        status = self.poll()
        return _UNKNOWN_STATUS if status is None else status

    def terminate(self) -> None:
        """Send SIGTERM to the process and what it started. One that ignores it stays. Nothing happens after the end."""
        if self._closed:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        terminate_processes(lambda: self.pids()[1:])

    def kill(self) -> None:
        """Kill it, and with it, as pid 1 of its namespace, everything that it started. Idempotent."""
        if not self._closed:
            kill_process(self._pidfd)

    def close(self) -> None:
        """Kill the tree, wait for its end (milliseconds, at most 10 s), close the descriptors. Idempotent."""
        if self._closed:
            return
        if self.poll() is None:
            self.kill()
            with contextlib.suppress(TimeoutError):
                self.wait(_END_TIMEOUT_S)
        self._closed = True
        if self.leaf is not None:
            self.leaf.discard()
        for fd in (self._pidfd, self.stdin, self.stdout, self.stderr):
            os.close(fd)


def _exit_status(pidfd: int) -> int:
    answer = bytearray(_PIDFD_INFO_BYTES)
    struct.pack_into("=Q", answer, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, answer)
    except OSError:
        return _UNKNOWN_STATUS
    if not struct.unpack_from("=Q", answer)[0] & _PIDFD_INFO_EXIT:
        return _UNKNOWN_STATUS
    code = os.waitstatus_to_exitcode(struct.unpack_from("=i", answer, _EXIT_CODE_OFFSET)[0])
    return code if code >= 0 else SIGNALLED_STATUS - code
