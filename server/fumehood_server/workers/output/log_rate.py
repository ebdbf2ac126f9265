"""Rate of what a worker logs: a count of bytes within a second."""

from __future__ import annotations

from collections.abc import Callable


class LogRate:
    """Counts what a worker writes to its log, second by second."""

    __slots__ = ("_clock", "_on_over", "_since", "limit_bytes", "seen_bytes")

    def __init__(self, *, limit_bytes: int, clock: Callable[[], float], on_over: Callable[[int], None]) -> None:
        """`on_over` is told the bytes of a second that are more than the limit. It may be told again."""
        self.limit_bytes = limit_bytes
        self._clock = clock
        self._on_over = on_over
        self._since = clock()
        self.seen_bytes = 0

    def count(self, size: int) -> None:
        """So many bytes were written just now."""
        now = self._clock()
        if now - self._since >= 1.0:
            self._since = now
            self.seen_bytes = 0
        self.seen_bytes += size
        if self.seen_bytes > self.limit_bytes:
            self._on_over(self.seen_bytes)
