"""Writes log lines together that were made together."""

from __future__ import annotations

import asyncio
import os

DELAY_S = 0.05
"""Longest that a line waits for others. Nobody reads a log faster, and a call costs no system call for its line."""

_FULL_BYTES = 64 * 1024


class LineWriter:
    """Lines to a descriptor: within `DELAY_S` while an event loop runs, at once where none does.

    Lines that say that something is wrong are written at once, with those before them. What waits is lost if the
    process is killed. A reader that has gone away loses the log and nothing else.
    """

    __slots__ = ("_descriptor", "_lines", "_size", "_timer")

    def __init__(self, descriptor: int) -> None:
        """`descriptor` stays the caller's and must be blocking."""
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, line: bytes) -> None:
        """Add one line, its end left out."""
        self._lines.append(line)
        self._size += len(line)
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
                return
            self._timer = loop.call_later(DELAY_S, self.flush)
        elif self._size > _FULL_BYTES:
            self.flush()

    def write_now(self, line: bytes) -> None:
        """Add one line and write all that waits."""
        self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        data = memoryview(b"\n".join([*self._lines, b""]))
        self._lines.clear()
        self._size = 0
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return
