"""How fast one plugin's requests may follow each other. Each leaves an event, so this bounds the journal too."""

from __future__ import annotations

import asyncio

_BURST_S = 1.0
"""What may come at once after a rest: as many as are allowed in this time."""


class Pace:
    """Gives out turns, in order, at a rate. One for each plugin."""

    def __init__(self) -> None:
        """Rested."""
        self._next_s = 0.0

    async def turn(self, per_s: float) -> None:
        """Wait for a turn. Who stops waiting gives it back."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s - _BURST_S) + 1 / per_s
        wait_s = self._next_s - now_s
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._next_s -= 1 / per_s
                raise
