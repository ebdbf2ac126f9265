"""Semaphores for long streams: so many in all, and so many for each caller."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.rpc.unread import UNIX


class StreamSlots:
    """Streams of one kind that are open. For one event loop."""

    __slots__ = ("_connection", "_name", "_taken", "_total")

    def __init__(self, name: str, *, total: int, connection: int) -> None:
        """`total` bounds all, of which unix sockets and TCP each leave the other a quarter; `connection` is for TCP."""
        self._name = name
        self._total = total
        self._connection = connection
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def take(self, caller: str) -> Iterator[None]:
        """Have a place within the block. `caller` is gRPC's name for the peer.

        Raises:
            RefusedError: there is none.
        """
        most = self._total * 3 // 4
        kinds = {UNIX: most} if caller == UNIX else {caller: self._connection, "tcp": most}
        for kind, limit in (*kinds.items(), ("", self._total)):
            if self._taken[kind] >= limit:
                whose = {UNIX: "of unix sockets", "tcp": "of TCP connections", "": ""}.get(kind, "of this connection")
                text = (
                    f"{limit} {self._name} {whose} are open, the most that there may be: close one, or try again later"
                )
                raise RefusedError(Refusal(RefusalReason.TOO_MANY_STREAMS, " ".join(text.split())))
        taken = [*kinds, ""]
        self._taken.update(taken)
        try:
            yield
        finally:
            for kind in taken:
                self._taken[kind] -= 1
                if not self._taken[kind]:
                    del self._taken[kind]
