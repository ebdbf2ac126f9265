"""Hands log lines over together that were made together."""

from __future__ import annotations

import asyncio

from fumehood_server.telemetry.background_writer import BackgroundWriter

DELAY_S = 0.05
"""Longest that a line waits for others. Nobody reads a log faster, and a call wakes no thread for its line."""

FLUSH_S = 1.0
"""Longest that the end of the process waits for a reader of the log."""

_FULL_BYTES = 64 * 1024


class LineWriter:
    """Lines to a writer in the background: within `DELAY_S` while an event loop runs, at once where none does.

    Lines that say that something is wrong are handed over at once, with those before them. What waits is lost if the
    process is killed.
    """

    __slots__ = ("_lines", "_size", "_timer", "_writer")

    def __init__(self, writer: BackgroundWriter) -> None:
        """Write through `writer`."""
        self._writer = writer
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
                self._hand_over()
                return
            self._timer = loop.call_later(DELAY_S, self._hand_over)
        elif self._size > _FULL_BYTES:
            self._hand_over()

    def write_now(self, line: bytes) -> None:
        """Add one line and hand over all that waits."""
        self._lines.append(line)
        self._hand_over()

    def flush(self) -> None:
        """Hand over what waits, and wait up to `FLUSH_S` until it is written."""
        self._hand_over()
        self._writer.wait_written(FLUSH_S)

    def close(self) -> None:
        """Hand over what waits, and end the thread once it is written."""
        self._hand_over()
        self._writer.close()

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            self._writer.add_lines(lines)
