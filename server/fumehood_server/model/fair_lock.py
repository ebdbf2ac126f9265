"""A mutex whose waiters take turns by key: whoever waits with many waits behind the others with each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """At most one waiter of each key is in the queue of all keys, first come, first served. For one event loop."""

    def __init__(self) -> None:
        """Nobody holds it."""
        self._everybody = asyncio.Lock()
        self._of_keys: dict[str, asyncio.Lock] = {}
        """Of the keys that hold it or wait for it."""
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Wait for the mutex, and hold it for the block."""
        own = self._of_keys.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with own, self._everybody:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._of_keys[key]
