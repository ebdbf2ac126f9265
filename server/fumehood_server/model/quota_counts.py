"""A sliding window over what a quota has used: few entries, each counted until the last of what it holds is too old.

What comes within a sixtieth of the window after an entry's first is added to that entry. So at most 61 entries count,
no window of that length ever holds more than the limit, and what was used is free again a sixtieth late at most.
"""

from __future__ import annotations

import decimal
import functools
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from fumehood_server.model.quotas import Charge, Exceeded

PARTS = 60
_EXACT = decimal.Context(prec=200, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.Inexact])
"""Amounts have 40 digits on each side of the point at most: their sums are exact, or raise."""
ZERO = Decimal(0)


@dataclass(slots=True)
class _Entry:
    first_us: int
    last_us: int
    amount: Decimal


@dataclass(slots=True)
class Window:
    """What is counted under one counter."""

    quota: str
    counts: str
    key: tuple[tuple[str, str], ...]
    window_us: int
    entries: list[_Entry] = field(default_factory=list)
    """The oldest first."""
    total: Decimal = ZERO
    """Of all entries, also of those that are too old."""

    @classmethod
    def of(cls, charge: Charge) -> Window:
        """Nothing yet."""
        return cls(charge.quota, charge.counts.value, charge.key, charge.window_us)

    @classmethod
    def from_json(cls, data: bytes) -> Window:
        """As it was kept."""
        found: dict[str, Any] = orjson.loads(data)
        entries = [_Entry(first_us, last_us, Decimal(amount)) for first_us, last_us, amount in found["entries"]]
        key = tuple((name, value) for name, value in found["key"])
        total = functools.reduce(_EXACT.add, (each.amount for each in entries), ZERO)
        return cls(found["quota"], found["counts"], key, found["window_us"], entries, total)

    def to_json(self) -> bytes:
        """To be kept."""
        return orjson.dumps(
            {
                "quota": self.quota,
                "counts": self.counts,
                "key": self.key,
                "window_us": self.window_us,
                "entries": [(each.first_us, each.last_us, str(each.amount)) for each in self.entries],
            }
        )

    @property
    def expires_us(self) -> int:
        """From when on nothing of it counts."""
        return self.entries[-1].last_us + self.window_us if self.entries else 0

    def now_us(self, now_us: int) -> int:
        """The time, which stands still while the clock is behind what was counted last."""
        return max(now_us, self.entries[-1].last_us) if self.entries else now_us

    def first_free_us(self, now_us: int, window_us: int) -> int:
        """When the first of what counts is free again. 0: nothing counts."""
        return next((each.last_us + window_us for each in self.entries if each.last_us > now_us - window_us), 0)

    def used(self, now_us: int, window_us: int) -> Decimal:
        """What counts at this time."""
        return self._old(now_us, window_us)[1]

    def _old(self, now_us: int, window_us: int) -> tuple[int, Decimal]:
        """How many entries are too old, and what the others have."""
        old, left = 0, self.total
        for each in self.entries:
            if each.last_us > now_us - window_us:
                break
            old, left = old + 1, _EXACT.subtract(left, each.amount)
        return old, left

    def exceeded(self, charge: Charge, now_us: int) -> Exceeded | None:
        """Why this may not be added. None: it may."""
        now_us = self.now_us(now_us)
        used = self.used(now_us, charge.window_us)
        excess = _EXACT.subtract(_EXACT.add(used, charge.amount), charge.limit)
        # Where results made it full, even a call that takes nothing by itself waits.
        is_full = charge.counts.known_later and used >= charge.limit
        if excess <= 0 and not is_full:
            return None
        free_us = None
        if charge.amount <= charge.limit:
            for each in self.entries:
                if each.last_us <= now_us - charge.window_us:
                    continue
                excess = _EXACT.subtract(excess, each.amount)
                used_then = _EXACT.add(excess, _EXACT.subtract(charge.limit, charge.amount))
                if excess <= 0 and not (charge.counts.known_later and used_then >= charge.limit):
                    free_us = each.last_us + charge.window_us
                    break
        return Exceeded(charge=charge, used=used, now_us=now_us, free_us=free_us)

    def add(self, charge: Charge, now_us: int) -> None:
        """Count it, and let go of what is too old."""
        now_us = self.now_us(now_us)
        self.window_us = charge.window_us
        old, left = self._old(now_us, charge.window_us)
        del self.entries[:old]
        self.total = _EXACT.add(left, charge.amount)
        last = self.entries[-1] if self.entries else None
        if last is not None and now_us - last.first_us < charge.window_us // PARTS:
            last.last_us, last.amount = now_us, _EXACT.add(last.amount, charge.amount)
        else:
            self.entries.append(_Entry(now_us, now_us, charge.amount))


__all__ = ["PARTS", "Window"]
