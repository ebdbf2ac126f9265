"""One call at a time for tools whose execution mode is `sequential`."""

from __future__ import annotations

import asyncio
from collections import deque

_Waiters = deque[asyncio.Future[None]]


class SequentialGate:
    """Who may run now, by tool. First come, first served. For one event loop."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, _Waiters] = {}

    def try_enter(self, tool: str) -> bool:
        """Enter if nobody is inside. Whoever entered must `leave` once."""
        if tool in self._held:
            return False
        self._held[tool] = deque()
        return True

    async def enter(self, tool: str) -> None:
        """Enter, after all who came before. A cancelled wait enters nothing."""
        if self.try_enter(tool):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._held[tool]
        waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(tool)  # the turn came between the cancellation and this line
            elif turn in waiters:
                waiters.remove(turn)
            raise

    def leave(self, tool: str) -> None:
        """Let the next one in."""
        waiters = self._held[tool]
        while waiters:
            turn = waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._held[tool]
