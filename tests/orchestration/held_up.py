"""How long the event loop is kept from its turns by a thread that has the interpreter's lock."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from fumehood_server.app import SWITCH_INTERVAL_S

TRIES = 5


async def held_up_s(work: Callable[[], Awaitable[object]]) -> float:
    """The most processor time of this whole process between two looks of the loop, a millisecond apart.

    Of a few tries the least: while others have the machine's processors, the loop looks later for that alone.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        return min([await _tried_s(work) for _ in range(TRIES)])
    finally:
        sys.setswitchinterval(before_s)


async def _tried_s(work: Callable[[], Awaitable[object]]) -> float:
    working = asyncio.ensure_future(work())
    longest_s, looked_s = 0.0, time.process_time()
    while not working.done():
        await asyncio.sleep(0.001)
        now_s = time.process_time()
        longest_s, looked_s = max(longest_s, now_s - looked_s), now_s
    await working
    return longest_s
