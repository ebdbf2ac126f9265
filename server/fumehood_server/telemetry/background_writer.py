"""Writes to a descriptor on a thread of its own, behind a queue that is bounded in bytes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Some 10,000 lines. More are dropped while the log's reader is slow."""


class BackgroundWriter:
    """A thread that writes lines to a descriptor. Adding lines never blocks, whatever the reader does.

    Lines that come while `MAX_WAITING_BYTES` wait are dropped and counted; a line in their place says how many,
    once there is room. Where the reader has closed its end, lines are lost and nothing else.
    """

    __slots__ = (
        *("_changed", "_closed", "_descriptor", "_dropped", "_dropped_line", "_waiting", "_waiting_bytes"),
        "dropped_in_all",
    )

    def __init__(self, descriptor: int, dropped_line: Callable[[int], bytes]) -> None:
        """Start the thread. `descriptor` stays the caller's, and must stay open until `wait_written` or for good.

        `dropped_line` makes the line that says how many were dropped.
        """
        self._descriptor = descriptor
        self._dropped_line = dropped_line
        self._dropped = 0
        self.dropped_in_all = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        # A daemon: a reader that never reads again must not keep the process from its exit.
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def add_lines(self, lines: Sequence[bytes]) -> None:
        """Queue lines, without their newlines."""
        data = b"\n".join([*lines, b""])
        with self._changed:
            if self._waiting and self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
                self._dropped += len(lines)
                self.dropped_in_all += len(lines)
                return
            self._append_dropped_line()
            self._append(data)
            self._changed.notify_all()

    def wait_written(self, timeout_s: float) -> bool:
        """Whether all queued lines are written, within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)

    def close(self) -> None:
        """End the thread once the queue is written. Doesn't wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _append(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _append_dropped_line(self) -> None:
        if self._dropped:
            self._append(self._dropped_line(self._dropped) + b"\n")
            self._dropped = 0

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                data = self._waiting[0]
            self._write(data)
            with self._changed:
                self._waiting.popleft()
                self._waiting_bytes -= len(data)
                if not self._waiting:
                    self._append_dropped_line()
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            return
