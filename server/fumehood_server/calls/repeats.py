"""Paces the outcomes of calls that somebody asks for again: one at a time, caller by caller.

A worker is needed for each outcome that is new. One that is repeated costs its caller nothing, and the event loop some
4 ms for each MiB: six sessions that repeated calls with such results had everybody else wait for 0.6 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fumehood_server.model.call import CallOutcome
from fumehood_server.model.fair_lock import FairLock

LARGE_CHARS = 64 * 1024
PAUSE_S = 0.01
"""After a large one, in which the event loop is everybody else's."""


class Repeats:
    """For one event loop."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._lock = FairLock()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn to read what was recorded, and hold it for the block, which ends with `pause`."""
        async with self._lock.hold(caller):
            yield

    async def pause(self, outcome: CallOutcome | None) -> None:
        """Leave the event loop to others for a moment, if the outcome is large. Within a turn."""
        if outcome is not None and _is_large(outcome):
            await asyncio.sleep(PAUSE_S)

    async def pace(self, caller: str, outcome: CallOutcome) -> None:
        """Wait for a turn with an outcome that somebody else is given as well, if it is large."""
        if _is_large(outcome):
            async with self.turn(caller):
                await self.pause(outcome)


def _is_large(outcome: CallOutcome) -> bool:
    size = len(outcome.details_json)
    return size + sum(each.length for each in outcome.content) > LARGE_CHARS
