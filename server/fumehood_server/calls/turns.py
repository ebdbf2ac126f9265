"""First come, first served mutexes by name: one call at a time for tools whose execution mode is `sequential`."""

from __future__ import annotations

from fumehood_server.model.waiters import WaiterQueue


class _Turn:
    """The turn of a tool, on its way to who waited for it (`waiters.Releasable`)."""

    __slots__ = ("_tool", "_turns")

    def __init__(self, turns: Turns, tool: str) -> None:
        self._turns = turns
        self._tool = tool

    def release(self) -> None:
        """It came when nobody waited any more: the next one has it."""
        self._turns.give_back(self._tool)


class Turns:
    """A FIFO mutex for each tool. For one event loop."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, WaiterQueue[_Turn]] = {}
        """Who waits for each tool that somebody has."""

    def try_take(self, tool: str) -> bool:
        """Take the turn if nobody has it. Whoever took it must `give_back` once."""
        if tool in self._held:
            return False
        self._held[tool] = WaiterQueue()
        return True

    async def take(self, tool: str) -> None:
        """Take the turn, after all who came before. A cancelled wait takes nothing."""
        if not self.try_take(tool):
            await self._held[tool].wait()

    def give_back(self, tool: str) -> None:
        """Let the next one have it."""
        free = [_Turn(self, tool)]
        self._held[tool].serve(lambda: free.pop() if free else None)
        if free:
            del self._held[tool]
