"""The calls under way: by id, each in a place that its caller may have."""

from __future__ import annotations

import asyncio

from fumehood_server.calls.call import Call
from fumehood_server.calls.places import SharedPlaces, Shortage
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallRequest


class Registry:
    """Every admitted call until it has its outcome. For one event loop."""

    __slots__ = ("_calls", "_closed", "_idle", "_places")

    def __init__(self, cap: int) -> None:
        """`cap` is the most calls under way at a time."""
        self._places = SharedPlaces(cap)
        self._calls: dict[str, Call] = {}
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._calls)

    def add_call(self, call: Call) -> None:
        """Admit a call. Whoever adds it sees to it that it is removed.

        Raises:
            RefusedError: the sidecar is draining, the id is in use, or its caller has as many calls as it may.
        """
        if self._closed:
            raise RefusedError(Refusal(RefusalReason.DRAINING, "the sidecar is shutting down: call another one"))
        call_id = call.request.call_id
        if call_id in self._calls:
            text = f'a call with the id "{call_id}" is under way'
            raise RefusedError(Refusal(RefusalReason.CALL_ID_IN_USE, text))
        self.take_place(call.request)
        self._calls[call_id] = call
        self._idle.clear()

    def take_place(self, request: CallRequest) -> None:
        """Take a place for a request, to be given back once.

        Raises:
            RefusedError: it has as many as it may.
        """
        shortage = self._places.take(request.caller, by_unix=request.identity.is_by_unix)
        if shortage is not None:
            raise RefusedError(_too_many(shortage, self._places.total))

    def give_back_place(self, request: CallRequest) -> None:
        """It is answered, or nobody waits for it any more."""
        self._places.give_back(request.caller)

    def remove_call(self, call: Call) -> None:
        """The call has its outcome."""
        del self._calls[call.request.call_id]
        self.give_back_place(call.request)
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


def _too_many(shortage: Shortage, total: int) -> Refusal:
    held, bound, free = shortage.held, shortage.bound, shortage.free
    text = (
        f"{held} calls of this caller are under way, and while {free} of {total} places are free it may have {bound}: "
        "back off and try again"
    )
    return Refusal(RefusalReason.TOO_MANY_CALLS, text, {"held": str(held), "bound": str(bound), "places": str(total)})
