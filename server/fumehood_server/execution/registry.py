"""The calls under way: by id, counted against the cap, and until when nobody waits for them any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood_server.errors import Refusal, RefusalReason, RefusedError

if TYPE_CHECKING:
    from fumehood_server.execution.active import ActiveCall


class Registry:
    """Every admitted call until it is answered, and until its worker has let go of it.

    A call that ended by its deadline is answered at once, while its worker still has a grace: it then counts against
    the cap, but its id is free.
    """

    __slots__ = ("_answered", "_by_id", "_cap", "_closed", "_idle")

    def __init__(self, cap: int) -> None:
        """`cap` is the most calls under way at a time."""
        self._cap = cap
        self._by_id: dict[str, ActiveCall] = {}
        self._answered: set[ActiveCall] = set()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._by_id) + len(self._answered)

    def add(self, call_id: str, call: ActiveCall) -> None:
        """Admit a call.

        Raises:
            RefusedError: the sidecar is draining, the id is in use, or the cap is reached.
        """
        if self._closed:
            raise RefusedError(Refusal(RefusalReason.DRAINING, "the sidecar is shutting down: call another one"))
        if call_id in self._by_id:
            text = f'a call with the id "{call_id}" is under way'
            raise RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))
        if len(self._by_id) + len(self._answered) >= self._cap:
            text = f"{self._cap} calls are under way, the most that this sidecar takes: back off and try again"
            raise RefusedError(Refusal(RefusalReason.TOO_MANY_CALLS, text))
        self._by_id[call_id] = call
        self._idle.clear()

    def answered(self, call_id: str, call: ActiveCall, *, lingers: bool) -> None:
        """The call has its outcome. `lingers`: its worker has not let go of it yet, and `released` will follow."""
        del self._by_id[call_id]
        if lingers:
            self._answered.add(call)
        elif not self:
            self._idle.set()

    def released(self, call: ActiveCall) -> None:
        """The worker has let go of a call that lingered."""
        self._answered.discard(call)
        if not self:
            self._idle.set()

    def find(self, call_id: str) -> ActiveCall | None:
        """The call of this id that has no outcome yet."""
        return self._by_id.get(call_id)

    def calls(self) -> tuple[ActiveCall, ...]:
        """The calls that have no outcome yet."""
        return tuple(self._by_id.values())

    def close(self) -> None:
        """Admit no more."""
        self._closed = True

    async def idle(self) -> None:
        """Return once no call is under way and none lingers."""
        await self._idle.wait()
