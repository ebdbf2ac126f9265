"""Places of requests that wait and are no call: callers share them as they share those of calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fumehood_server.calls.places import SharedPlaces
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.rpc.authentication import Asking


class WaitingRequests:
    """Requests that wait. For one event loop.

    Who came by another address is another caller, though gRPC gives all connections to unix sockets one name: a flood
    at one leaves places to the operator, at an address of its own.
    """

    __slots__ = ("_places",)

    def __init__(self, total: int) -> None:
        """`total` is how many there may be."""
        self._places = SharedPlaces(total)

    @contextlib.contextmanager
    def take(self, asking: Asking) -> Iterator[None]:
        """Have a place within the block.

        Raises:
            RefusedError: the caller has as many as it may.
        """
        who = asking.admitted
        caller = f"{who.connection} at {asking.authenticator.address}"
        shortage = self._places.take(caller, by_unix=who.is_by_unix)
        if shortage is not None:
            text = (
                f"{shortage.held} requests of this caller wait, and while {shortage.free} of {self._places.total} "
                f"places are free it may have {shortage.bound}: back off and try again"
            )
            raise RefusedError(Refusal(RefusalReason.TOO_MANY_STREAMS, text))
        try:
            yield
        finally:
            self._places.give_back(caller)
