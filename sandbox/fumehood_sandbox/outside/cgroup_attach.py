"""Puts bubblewrap into its cgroup before it does anything: until then it waits for its arguments."""

from __future__ import annotations

import os
import subprocess
import threading

from fumehood_sandbox.cgroup import Leaf

_JOIN_S = 10.0
"""Moving a process takes 15 ms at most, and handing over arguments less; this bounds a machine that hangs."""


class Entrance:
    """A process on its way into a leaf. bubblewrap reads its arguments from a pipe, and they are written when it is in.

    That is done by a thread of its own, since the kernel may take 15 ms to move a process, and who starts sandboxes has
    calls to serve meanwhile. `finish` or `abandon` it.
    """

    def __init__(self, leaf: Leaf, popen: subprocess.Popen[bytes], gate_fd: int, arguments: bytes) -> None:
        """Take over the leaf and `gate_fd`, the pipe's end to write to."""
        self.leaf = leaf
        self._popen = popen
        self._gate_fd = gate_fd
        self._arguments = arguments
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="fumehood-entrance", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.leaf.add(self._popen.pid)
            view = memoryview(self._arguments)
            while view:
                view = view[os.write(self._gate_fd, view) :]
        except OSError as error:
            self._error = error
            # Before the pipe is closed: at its end bubblewrap would go on with the arguments that it has.
            self._popen.kill()
        finally:
            os.close(self._gate_fd)

    def finish(self) -> OSError | None:
        """Wait for the thread, which is over once the program runs. Returns what went wrong."""
        self._thread.join(_JOIN_S)
        return self._error

    def abandon(self) -> None:
        """What was started is dead: wait for the thread and give up the leaf."""
        self._thread.join(_JOIN_S)
        self.leaf.discard()


class Stepped:
    """A process that began in its leaf: nothing is left to be done. See `cgroup.doorway`."""

    def __init__(self, leaf: Leaf) -> None:
        """Take over the leaf."""
        self.leaf = leaf

    def finish(self) -> OSError | None:
        """Nothing could go wrong."""
        return None

    def abandon(self) -> None:
        """What was started is dead: give up the leaf."""
        self.leaf.discard()
