"""Admission by dynamic thresholds: a bounded number of places that many callers share, of whom none can take all.

The rule is that of switches whose ports share one buffer (Choudhury and Hahne, "Dynamic queue length thresholds for
shared-memory packet switches", 1998): whoever holds less than `ALPHA` times what is free may have one more. Who is
alone has three quarters of all; n callers leave one part in 3n + 1 free for the next one. Nothing is configured, and
nothing is learnt from traffic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

ALPHA = 3

UNIX_SHARE = 16
"""One place in so many is for unix sockets alone: thousands of TCP connections with a call each take all the others."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a caller gets no place: it holds as many as it may hold while so few are free."""

    held: int
    bound: int
    free: int


class SharedPlaces:
    """Places, each taken by a caller. For one event loop.

    A caller is any name for who shares them: of a `[[caller]]`, of a connection, of all on unix sockets together.
    """

    __slots__ = ("_held", "_taken", "total")

    def __init__(self, total: int) -> None:
        """`total` is how many there are."""
        self.total = total
        self._taken = 0
        self._held: Counter[str] = Counter()

    def take(self, caller: str, *, by_unix: bool) -> Shortage | None:
        """Take a place, to be given back once. None: it is taken. `by_unix`: whether it came by a unix socket."""
        free = self.total - self._taken
        if not by_unix:
            free = max(free - self.total // UNIX_SHARE, 0)
        held = self._held[caller]
        if held >= ALPHA * free:
            return Shortage(held, ALPHA * free, free)
        self._taken += 1
        self._held[caller] = held + 1
        return None

    def give_back(self, caller: str) -> None:
        """Give a place back."""
        self._taken -= 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
