"""Things that are to happen to a worker later, unless something else comes first: each by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """Those of one worker. A name that has come due stays known until it is forgotten."""

    __slots__ = ("_loop", "_named")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """None yet."""
        self._loop = loop
        self._named: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, name: str) -> bool:
        """Whether it was set and not forgotten since."""
        return name in self._named

    def after(self, name: str, delay_s: float, callback: Callable[..., None], *arguments: object) -> None:
        """Call back later, unless that is forgotten first."""
        self._named[name] = self._loop.call_later(delay_s, callback, *arguments)

    def forget(self, name: str) -> None:
        """See that it does not happen any more. Idempotent."""
        timer = self._named.pop(name, None)
        if timer is not None:
            timer.cancel()

    def forget_all(self) -> None:
        """See that nothing happens any more. Idempotent."""
        while self._named:
            self._named.popitem()[1].cancel()
