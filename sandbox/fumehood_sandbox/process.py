"""The protocol of a running process tree, whatever made its sandbox."""

from __future__ import annotations

import contextlib
import signal
import socket
from types import TracebackType
from typing import Protocol, Self

from fumehood_sandbox.cgroup import Leaf
from fumehood_sandbox.kernel.constants import SIGNALLED_STATUS
from fumehood_sandbox.receipt import Receipt


class SandboxedProcess(Protocol):
    """One sandboxed process tree. Owned: close it, or use it as a context manager.

    Not for use from several threads at a time. `close` may come at any moment, and again.
    """

    pid: int
    """The process that stands for the program: its exit is the program's."""
    init_pid: int
    """The one whose death is that of the whole tree, as seen from outside. Only meaningful until the end."""
    receipt: Receipt
    """What holds the process."""
    leaf: Leaf | None
    """Its cgroup, for reading. None where there is none. It stops reading with `close`, which discards it."""
    relay: socket.socket | None
    """A socket that listens inside, where the policy asks for a relay: accept what the program connects to it.

    Non-blocking. Closed by `close`, unless whoever serves it has taken it and put None in its place.
    """
    stdin: int
    stdout: int
    stderr: int
    """This side's ends of the program's pipes: blocking, close-on-exec, closed by `close`."""

    def fileno(self) -> int:
        """A pidfd that becomes readable when the program has ended: for select, poll and event loops."""

    def pidfds(self) -> tuple[int, ...]:
        """Each becomes readable when what it stands for has ended; with all of them the whole tree has. Not to close.

        The program's own comes first.
        """

    def poll(self) -> int | None:
        """The exit status, or None while it runs. 128 + n stands for death by signal n, as in a shell."""

    def wait(self, timeout_s: float) -> int:
        """Block until the program ends and return its exit status.

        Raises:
            TimeoutError: it still runs.
        """

    def pids(self) -> list[int]:
        """Every process of the program, as seen from outside. Empty after the end."""

    def terminate(self) -> None:
        """Send SIGTERM to every process of the program. One that ignores it stays. Nothing happens after the end."""

    def kill(self) -> None:
        """Kill the whole tree. Idempotent."""

    def close(self) -> None:
        """Kill the tree, wait for its end (milliseconds, at most 10 s), close the descriptors. Idempotent."""

    @property
    def exit_signal(self) -> signal.Signals | None:
        """The signal that ended it. None while it runs, and when it exited.

        A sandbox reports a death by signal as status 128 + n, so a program that exits with such a status itself is
        taken for one that died of the signal.
        """
        status = self.poll()
        with contextlib.suppress(ValueError):
            if status is not None and status > SIGNALLED_STATUS:
                return signal.Signals(status - SIGNALLED_STATUS)
        return None

    @property
    def exit_description(self) -> str:
        """How it ended, for people, with the same reservation; "running" before that."""
        status = self.poll()
        if status is None:
            return "running"
        number = self.exit_signal
        return f"exited with status {status}" if number is None else f"killed by {number.name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
