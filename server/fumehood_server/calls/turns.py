"""First come, first served mutexes by name: one call at a time for tools whose execution mode is `sequential`."""

from __future__ import annotations

import asyncio
from collections import deque

_Waiters = deque[asyncio.Future[None]]


class Turns:
    """A FIFO mutex for each tool. For one event loop."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, _Waiters] = {}

    def try_take(self, tool: str) -> bool:
        """Take the turn if nobody has it. Whoever took it must `give_back` once."""
        if tool in self._held:
            return False
        self._held[tool] = deque()
        return True

    async def take(self, tool: str) -> None:
        """Take the turn, after all who came before. A cancelled wait takes nothing."""
        if self.try_take(tool):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._held[tool]
        waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(tool)  # the turn came between the cancellation and this line
            elif turn in waiters:
                waiters.remove(turn)
            raise

    def give_back(self, tool: str) -> None:
        """Let the next one have it."""
        waiters = self._held[tool]
        while waiters:
            turn = waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._held[tool]
