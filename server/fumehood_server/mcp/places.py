"""Counting semaphore whose places are shared out among callers: one of them leaves others room."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator


class NoPlaceError(Exception):
    """All places are taken, or all that one caller may take."""


class Places:
    """So many at a time, of which one caller has three quarters at most. For one event loop."""

    __slots__ = ("_all", "_each", "_taken", "_total")

    def __init__(self, total: int) -> None:
        """None is taken."""
        self._total = total
        self._each = share_of(total)
        self._taken: Counter[str] = Counter()
        self._all = 0

    @contextlib.contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Hold one for the length of the block.

        Raises:
            NoPlaceError: there is none for this caller, at once.
        """
        if self._all >= self._total or self._taken[caller] >= self._each:
            raise NoPlaceError
        self._all += 1
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._all -= 1
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


def share_of(total: int) -> int:
    """How many of `total` one caller has at most."""
    return max(total * 3 // 4, 1)
