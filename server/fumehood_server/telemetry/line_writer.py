"""Batches log lines for the background writer."""

from __future__ import annotations

import asyncio

from fumehood_server.telemetry.background_writer import BackgroundWriter

DELAY_S = 0.05
"""Longest that a line waits for others, so that a call doesn't wake a thread for its line."""

FLUSH_S = 1.0
"""Longest wait for the log's reader when the process ends."""

_FULL_BYTES = 64 * 1024


class LineWriter:
    """Buffers lines for up to `DELAY_S` while an event loop runs; without one each is passed on at once.

    Warnings and errors are passed on at once, with the lines before them. Buffered lines are lost if the process is
    killed.
    """

    __slots__ = ("_lines", "_size", "_timer", "_writer")

    def __init__(self, writer: BackgroundWriter) -> None:
        """Write through `writer`."""
        self._writer = writer
        self._lines: list[bytes] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def write_line(self, line: bytes) -> None:
        """Add one line, without its newline."""
        self._lines.append(line)
        self._size += len(line)
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._pass_on()
                return
            self._timer = loop.call_later(DELAY_S, self._pass_on)
        elif self._size > _FULL_BYTES:
            self._pass_on()

    def write_line_now(self, line: bytes) -> None:
        """Add one line and pass all on."""
        self._lines.append(line)
        self._pass_on()

    @property
    def dropped(self) -> int:
        """Lines dropped so far."""
        return self._writer.dropped_in_all

    def flush(self) -> None:
        """Pass all on, and wait up to `FLUSH_S` until it is written."""
        self._pass_on()
        self._writer.wait_written(FLUSH_S)

    def close(self) -> None:
        """Pass all on, and end the thread once it is written."""
        self._pass_on()
        self._writer.close()

    def _pass_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            self._writer.add_lines(lines)
