"""Rate limits: a token bucket for lines and frames, and a count of bytes within a second."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """A token bucket. It starts full; `take` costs nothing while it is far from empty."""

    __slots__ = ("_burst", "_clock", "_filled_at", "_per_second", "_tokens")

    def __init__(self, *, burst: int, per_second: float, clock: Callable[[], float]) -> None:
        """`burst` may be taken at once, `per_second` over time; `clock` counts seconds and never goes back."""
        self._burst = burst
        self._per_second = per_second
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()

    def take(self) -> bool:
        """Take one. False when there is none left now."""
        if self._tokens < 1.0:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
            self._filled_at = now
            if self._tokens < 1.0:
                return False
        self._tokens -= 1.0
        return True


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
