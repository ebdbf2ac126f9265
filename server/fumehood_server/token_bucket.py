"""Rate limit of whatever comes one by one: a token bucket."""

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
