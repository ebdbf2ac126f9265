"""What is made once of each sandbox receipt, and goes when the receipt does."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from fumehood_sandbox import Receipt

_Made = TypeVar("_Made")


class PerReceipt(Generic[_Made]):
    """A table by identity: hashing a receipt costs more than what is made of it. For one event loop.

    It holds no receipt. A worker for one call has one of its own, and a thousand of those with what was made of them
    were 12 MiB that nobody asked for again.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        """It is empty."""
        self._made: dict[int, tuple[weakref.ref[Receipt], _Made]] = {}

    def get(self, receipt: Receipt) -> _Made | None:
        """What was kept of the receipt."""
        found = self._made.get(id(receipt))
        return None if found is None or found[0]() is not receipt else found[1]

    def keep(self, receipt: Receipt, made: _Made) -> None:
        """Keep this for as long as there is the receipt."""
        key, table = id(receipt), self._made
        table[key] = (weakref.ref(receipt, lambda _: table.pop(key, None)), made)
