"""Looks again for the programs of plugins that weren't installed: in a thread, and at most once a second."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from fumehood_server.config.config import SidecarConfig
from fumehood_server.errors import FumehoodError
from fumehood_server.plugins.registration import Registration, register

LOOK_INTERVAL_S = 1.0
"""From one look to the next. Forty plugins take 30 ms, and every caller may ask for every listing."""


class MissingPrograms:
    """Who looks, and when. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Looks at once, when it is first asked to."""
        self._clock = clock
        self._next_look = -math.inf
        self._looking = asyncio.Lock()

    async def look(
        self, config: SidecarConfig, waiting: Callable[[], Sequence[Registration]]
    ) -> Sequence[tuple[Registration, Registration]]:
        """Registrations that wait for a program which is there now, each with what takes its place. None in between.

        Who asks while somebody looks waits for that.
        """
        async with self._looking:
            if self._clock() < self._next_look:
                return ()
            found = await asyncio.to_thread(_registered, config, waiting())
            self._next_look = self._clock() + LOOK_INTERVAL_S
            return found


def _registered(config: SidecarConfig, waiting: Sequence[Registration]) -> Sequence[tuple[Registration, Registration]]:
    found = []
    for old in waiting:
        if old.loaded is None:
            continue
        try:
            new = register(config, old.config, old.loaded)
        except FumehoodError:
            continue
        if not new.waits_for_program:
            found.append((old, new))
    return found
