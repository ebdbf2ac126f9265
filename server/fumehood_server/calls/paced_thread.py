"""A thread for what computes: one piece at a time, in turns of whoever asks, and with a rest after each.

A thread that computes keeps the interpreter from the event loop, and several at once do so each in its turn: while six
checked the schemas of a plugin that sent thousands of questions a second, calls of others took seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from fumehood_server.calls.round_robin import KeyPath, RoundRobin
from fumehood_server.settling import to_its_end

_RESTS = 3
"""So many times as long as a piece computed, nothing does. Nobody waits for the rest after their own piece."""
_LONGEST_REST_S = 0.1

_Result = TypeVar("_Result")


class PacedThread:
    """For one event loop."""

    def __init__(self) -> None:
        """Nothing computes."""
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()
        self._is_free = True

    async def run(self, path: KeyPath, function: Callable[[], _Result]) -> _Result:
        """What the function returns. The keys of each level of a path take turns.

        Cancelled while it waits it leaves nothing; later it ends with the function.

        Raises:
            BaseException: what the function raises.
        """
        await self._turn(path)
        computed_s = [0.0]

        def timed() -> _Result:
            begun = time.thread_time()
            try:
                return function()
            finally:
                computed_s[0] = time.thread_time() - begun

        try:
            return await to_its_end(asyncio.ensure_future(asyncio.to_thread(timed)))
        finally:
            rest_s = min(_RESTS * computed_s[0], _LONGEST_REST_S)
            asyncio.get_running_loop().call_later(rest_s, self._hand_on)

    async def _turn(self, path: KeyPath) -> None:
        if self._is_free:
            self._is_free = False
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(path, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(path, turn)
            else:
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        while self._waiting:
            turn = self._waiting.take()
            if not turn.done():  # else who waited was cancelled, and is about to take it out
                turn.set_result(None)
                return
        self._is_free = True
