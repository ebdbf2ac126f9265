"""Processes held by pidfds (pidfd_open(2)): waiting for their end, and signals that can't reach another process."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from typing import overload

from fumehood_sandbox.kernel.constants import SIGNALLED_STATUS


def open_child_pidfd(child: subprocess.Popen[bytes], fds: tuple[int, ...]) -> int:
    """A pidfd of this process's child.

    Raises:
        OSError: there is no descriptor left. `fds` are closed.
    """
    try:
        return os.pidfd_open(child.pid)
    except OSError:
        for fd in fds:
            os.close(fd)
        raise


def open_pidfd(pid: int) -> int:
    """A pidfd of a process that may have ended and been reaped meanwhile.

    Raises:
        ProcessLookupError: it has.
        OSError: there is no descriptor left.
    """
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # Linux 6.1 says so of one that is reaped between its look-ups of the number and of the process.
        if error.errno == errno.EINVAL:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
        raise


@overload
def shell_status(status: int) -> int: ...


@overload
def shell_status(status: int | None) -> int | None: ...


def shell_status(status: int | None) -> int | None:
    """128 + n where the child itself was killed by signal n, as it exits with when the program was."""
    return status if status is None or status >= 0 else SIGNALLED_STATUS - status


def ends_within(pidfd: int, timeout_s: float) -> bool:
    """Wait until a process has ended, and say whether it has."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def reap(pidfd: int, timeout_s: float) -> None:
    """Wait until a process has ended, and reap it if it has become this one's child.

    That happens to pid 1 of a namespace when bubblewrap ends first and the launcher is pid 1 of its container, or a
    subreaper: nobody else would reap it.
    """
    ends_within(pidfd, timeout_s)
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def kill_process(pidfd: int) -> None:
    """Send SIGKILL. Nothing happens after the end."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def terminate_processes(list_pids: Callable[[], Iterable[int]]) -> None:
    """Send SIGTERM to each of these processes. Where this process lacks descriptors, only to the first of them.

    A number may have been given to another process since it was listed. A pidfd fixes whose it is: so they are listed
    a second time, and only who is among them then is signalled.
    """
    held: list[tuple[int, int]] = []
    try:
        for pid in list_pids():
            try:
                held.append((pid, open_pidfd(pid)))
            except ProcessLookupError:
                continue
            except OSError:
                break
        still_there = set(list_pids()) if held else ()
        for pid, pidfd in held:
            if pid in still_there:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    finally:
        for _, pidfd in held:
            os.close(pidfd)


def descendants(pid: int) -> Iterator[int]:
    """Every process below this one. The kernel lists a thread's children; those of dead parents hang on pid 1."""
    for thread in _entries(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - twenty trees may end at once
                children = file.read().split()
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
