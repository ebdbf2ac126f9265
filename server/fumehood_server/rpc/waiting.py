"""Places of requests that wait for other work, and are no call: callers share them as they share those of calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fumehood_server.calls.places import SharedPlaces
from fumehood_server.errors import Refusal, RefusalReason, RefusedError


class WaitingRequests:
    """Requests that wait: each may hold a mebibyte meanwhile. For one event loop."""

    __slots__ = ("_places",)

    def __init__(self, total: int) -> None:
        """`total` is how many there may be."""
        self._places = SharedPlaces(total)

    @contextlib.contextmanager
    def take(self, caller: str) -> Iterator[None]:
        """Have a place within the block. `caller` is gRPC's name for the peer.

        Raises:
            RefusedError: it has as many as it may.
        """
        shortage = self._places.take(caller)
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
