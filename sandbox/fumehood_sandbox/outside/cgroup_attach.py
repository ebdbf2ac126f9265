"""Cgroup attach: how a program that was just started comes to be in its leaf before it does anything."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Protocol

from fumehood_sandbox.cgroup import Leaf

_MOVE_TIMEOUT_S = 10.0
"""Moving a process takes 15 ms at most, and handing over arguments less; this bounds a machine that hangs."""


class CgroupAttach(Protocol):
    """A process on its way into its leaf. `finish` it when the program is about to run, or `abandon` it."""

    leaf: Leaf

    def finish(self) -> OSError | None:
        """Wait until it is in. Returns what went wrong."""

    def abandon(self) -> None:
        """What was started is dead: give up the leaf."""


class MovedAttach(CgroupAttach):
    """A process that is moved: bubblewrap reads its arguments from a pipe, and they are written when it is in.

    A thread of its own does that, since the kernel may take 15 ms to move a process, and who starts sandboxes has calls
    to serve meanwhile.
    """

    def __init__(self, leaf: Leaf, popen: subprocess.Popen[bytes], arguments_fd: int, arguments: bytes) -> None:
        """Take over the leaf and the pipe's end to write to."""
        self.leaf = leaf
        self._popen = popen
        self._arguments_fd = arguments_fd
        self._arguments = arguments
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._move_process, name="fumehood-cgroup-move", daemon=True)
        self._thread.start()

    def _move_process(self) -> None:
        try:
            self.leaf.add_process(self._popen.pid)
            view = memoryview(self._arguments)
            while view:
                view = view[os.write(self._arguments_fd, view) :]
        except OSError as error:
            self._error = error
            # Before the pipe is closed: at its end bubblewrap would go on with the arguments that it has.
            self._popen.kill()
        finally:
            os.close(self._arguments_fd)

    def finish(self) -> OSError | None:
        """Wait for the thread, which is over once the program runs. Returns what went wrong."""
        self._thread.join(_MOVE_TIMEOUT_S)
        return self._error

    def abandon(self) -> None:
        """What was started is dead: wait for the thread and give up the leaf."""
        self._thread.join(_MOVE_TIMEOUT_S)
        self.leaf.discard()


class JoinedAttach(CgroupAttach):
    """A process that was forked in its leaf: nothing is left to be done. See `cgroup.joining_thread`."""

    def __init__(self, leaf: Leaf) -> None:
        """Take over the leaf."""
        self.leaf = leaf

    def finish(self) -> OSError | None:
        """It is in."""
        return None

    def abandon(self) -> None:
        """What was started is dead: give up the leaf."""
        self.leaf.discard()
