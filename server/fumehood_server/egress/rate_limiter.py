"""Rate limit of one plugin's requests, by virtual scheduling (GCRA).

Each request leaves an event, so this bounds the log as well.
"""

from __future__ import annotations

import asyncio

_BURST_S = 1.0
"""Burst: as many requests as the rate allows in this time may come at once."""


class RateLimiter:
    """Admits requests in the order in which they came, at a rate. One for each plugin."""

    def __init__(self) -> None:
        """Allow a whole burst."""
        self._next_s = 0.0

    async def wait_for_slot(self, per_s: float) -> None:
        """Wait until the rate allows one more request. A cancelled wait gives its slot back."""
        now_s = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now_s - _BURST_S) + 1 / per_s
        wait_s = self._next_s - now_s
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._next_s -= 1 / per_s
                raise
