"""The calls under way: by id, counted against the cap."""

from __future__ import annotations

import asyncio

from fumehood_server.calls.call import Call
from fumehood_server.errors import Refusal, RefusalReason, RefusedError


class Registry:
    """Every admitted call until it has its outcome. For one event loop."""

    __slots__ = ("_calls", "_cap", "_closed", "_idle")

    def __init__(self, cap: int) -> None:
        """`cap` is the most calls under way at a time."""
        self._cap = cap
        self._calls: dict[str, Call] = {}
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._calls)

    def add_call(self, call: Call) -> None:
        """Admit a call. Whoever adds it sees to it that it is removed.

        Raises:
            RefusedError: the sidecar is draining, the id is in use, or the cap is reached.
        """
        if self._closed:
            raise RefusedError(Refusal(RefusalReason.DRAINING, "the sidecar is shutting down: call another one"))
        call_id = call.request.call_id
        if call_id in self._calls:
            text = f'a call with the id "{call_id}" is under way'
            raise RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))
        if len(self._calls) >= self._cap:
            text = f"{self._cap} calls are under way, the most that this sidecar takes: back off and try again"
            raise RefusedError(Refusal(RefusalReason.TOO_MANY_CALLS, text))
        self._calls[call_id] = call
        self._idle.clear()

    def remove_call(self, call: Call) -> None:
        """The call has its outcome."""
        del self._calls[call.request.call_id]
        if not self._calls:
            self._idle.set()

    def find_call(self, call_id: str) -> Call | None:
        """The call of this id that is under way."""
        return self._calls.get(call_id)

    def calls(self) -> tuple[Call, ...]:
        """The calls under way."""
        return tuple(self._calls.values())

    def close(self) -> None:
        """Admit no more."""
        self._closed = True

    async def idle(self) -> None:
        """Return once no call is under way."""
        await self._idle.wait()
