"""Tells long streams that the sidecar is shutting down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


class Drain:
    """Begins once. For one event loop."""

    __slots__ = ("_listeners", "begun")

    def __init__(self) -> None:
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Tell every listener. Idempotent."""
        if not self.begun:
            self.begun = True
            for listener in tuple(self._listeners):
                listener()

    @contextlib.contextmanager
    def listen(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` when the drain begins within the block."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)
