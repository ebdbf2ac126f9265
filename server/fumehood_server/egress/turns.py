"""Round-robin scheduling of costly reading on the event loop: one turn in each millisecond, plugin by plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.model.fair_lock import FairLock

SMALL_PIECE_BYTES = 1024
PAUSE_S = 0.001
"""Between two turns, of 0.2 to 0.5 ms each. Without it the loop would never be idle under such load: the kernel's
scheduler lets a process that always runs wait longest on a busy machine, and with it everybody's calls."""


class PluginTurns:
    """The turns of one plugin. At most one of its tasks waits among those of the other plugins."""

    def __init__(self, plugin: str, lock: FairLock) -> None:
        """Share `lock` with the other plugins."""
        self._plugin = plugin
        self._lock = lock

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the block, which must not await."""
        async with self._lock.hold(self._plugin):
            await asyncio.sleep(PAUSE_S)
            yield

    async def pace(self, piece_bytes: int) -> None:
        """After a very small piece was read, wait for a turn. What comes meanwhile is one piece for the next read."""
        if piece_bytes < SMALL_PIECE_BYTES:
            async with self.turn():
                pass


class Turns:
    """The turns of all plugins, by name."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._lock = FairLock()

    def of(self, plugin: str) -> PluginTurns:
        """Those of one plugin."""
        return PluginTurns(plugin, self._lock)
