"""Tells long streams that the sidecar is shutting down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any


class Drain:
    """Begins once, and then ends once: no call is under way any more. For one event loop."""

    __slots__ = ("_ended", "_listeners", "begun")

    def __init__(self) -> None:
        self.begun = False
        self._ended = asyncio.Event()
        self._listeners: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Tell every listener. Idempotent."""
        if not self.begun:
            self.begun = True
            for listener in tuple(self._listeners):
                listener()

    def end(self) -> None:
        """End the streams that would go on for ever. Idempotent."""
        self._ended.set()

    @contextlib.contextmanager
    def listen(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` when the drain begins within the block."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    async def until_end(self, stream: Coroutine[Any, Any, None]) -> None:
        """Await `stream`, or cancel it when the drain ends."""
        async with asyncio.TaskGroup() as tasks:
            work, ended = tasks.create_task(stream), tasks.create_task(self._ended.wait())
            await asyncio.wait((work, ended), return_when=asyncio.FIRST_COMPLETED)
            work.cancel()
            ended.cancel()
