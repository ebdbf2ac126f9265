"""Writes log lines together that were made together."""

from __future__ import annotations

import asyncio
import os


class TickWriter:
    """Lines to a descriptor: at the end of the event loop's current turn, or at once where no loop runs.

    At 32 calls in flight one write carries the lines of many; a line of its own for each would cost a system call and
    wake whoever reads the log. Lines of a turn are lost if the process dies within it. A reader that has gone away
    loses the log and nothing else.
    """

    __slots__ = ("_descriptor", "_lines", "_scheduled")

    def __init__(self, descriptor: int) -> None:
        """`descriptor` stays the caller's and must be blocking."""
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._scheduled = False

    def write(self, line: bytes) -> None:
        """Add one line, its end left out."""
        self._lines.append(line)
        if self._scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._scheduled = True
        loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is there."""
        self._scheduled = False
        if not self._lines:
            return
        data = memoryview(b"\n".join([*self._lines, b""]))
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return
