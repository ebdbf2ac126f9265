"""Memory of answers that callers have not read: counted for each caller and in total, until gRPC has sent them.

gRPC keeps an answer until its stream's flow-control window takes it, and nothing of it says that a stream can be given
up: so calls are refused before they make more, and a TCP connection that holds too much is closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fumehood_server.errors import Refusal, RefusalReason, RefusedError

_MIB = 1024 * 1024

MAX_CONNECTION_BYTES = 32 * _MIB
"""Unread answers of one TCP connection, above which it may begin no call."""

MAX_UNIX_BYTES = 64 * _MIB
"""The same for all connections to unix sockets together, which gRPC can't tell apart. TCP callers can't use it up."""

MAX_TCP_BYTES = 128 * _MIB
"""The same for all TCP connections together."""

CLOSE_ABOVE_BYTES = 96 * _MIB
"""Of all TCP connections: above it the one that holds most is closed, so that the others are not refused."""

MARGIN_BYTES = 32 * _MIB
"""For the answers of calls that were under way when a bound was met. What is more is dropped."""

STREAM_BYTES = 16 * 1024
"""To be counted on top of an answer that has a stream of its own: gRPC's state of it, and its tasks."""

UNIX = "unix:"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadBounds:
    """What may be unread."""

    connection_bytes: int = MAX_CONNECTION_BYTES
    unix_bytes: int = MAX_UNIX_BYTES
    tcp_bytes: int = MAX_TCP_BYTES
    close_above_bytes: int = CLOSE_ABOVE_BYTES
    margin_bytes: int = MARGIN_BYTES


_BOUNDS = UnreadBounds()
OPEN_BOUNDS = UnreadBounds(
    connection_bytes=2 * _MIB, unix_bytes=8 * _MIB, tcp_bytes=16 * _MIB, close_above_bytes=12 * _MIB, margin_bytes=_MIB
)
"""For methods that are open to everybody, whose answers are some bytes: 128 of one TCP connection."""


class UnreadAnswers:
    """What each caller has not read, by gRPC's name for its peer. For one event loop."""

    __slots__ = ("_bounds", "_bytes", "_closing", "_disconnect", "_tcp_bytes")

    def __init__(self, disconnect: Callable[[str], None], bounds: UnreadBounds = _BOUNDS) -> None:
        """`disconnect` closes the connection of a TCP peer. It must not block."""
        self._disconnect = disconnect
        self._bounds = bounds
        self._bytes: dict[str, int] = {}
        self._tcp_bytes = 0
        self._closing: set[str] = set()

    def apart(self, bounds: UnreadBounds) -> UnreadAnswers:
        """The same for answers that are counted apart from these."""
        return UnreadAnswers(self._disconnect, bounds)

    def check(self, caller: str) -> None:
        """Whether the caller may begin a call.

        Raises:
            RefusedError: too much of what it was answered, or of what all TCP callers were, is unread.
        """
        own = self._bytes.get(caller, 0)
        if own and own >= self._limit(caller):
            raise _refused(f"{own:,} bytes of answers to this caller are unread")
        if caller != UNIX and self._tcp_bytes >= self._bounds.tcp_bytes:
            raise _refused(f"{self._tcp_bytes:,} bytes of answers are unread by all callers over TCP")

    def add(self, caller: str, size: int) -> None:
        """Count an answer that is about to be sent, until `remove`.

        Raises:
            RefusedError: there is no room: drop it.
        """
        own = self._bytes.get(caller, 0)
        # A caller that has read all can have any one answer.
        if own and own + size > self._limit(caller) + self._bounds.margin_bytes:
            raise _dropped(f"{own:,} bytes of answers to this caller are unread")
        if caller != UNIX:
            if self._tcp_bytes + size > self._bounds.tcp_bytes + self._bounds.margin_bytes:
                raise _dropped(f"{self._tcp_bytes:,} bytes of answers are unread over TCP")
            self._tcp_bytes += size
        self._bytes[caller] = own + size
        if caller != UNIX:
            self._close_heaviest_above(self._bounds.close_above_bytes)

    def remove(self, caller: str, size: int) -> None:
        """An answer was sent, or nobody will read it any more."""
        left = self._bytes[caller] - size
        if caller != UNIX:
            self._tcp_bytes -= size
        if left:
            self._bytes[caller] = left
        else:
            del self._bytes[caller]
            self._closing.discard(caller)

    @contextlib.contextmanager
    def held(self, caller: str, size: int) -> Iterator[None]:
        """Count an answer while it is sent.

        Raises:
            RefusedError: there is no room: drop it.
        """
        self.add(caller, size)
        try:
            yield
        finally:
            self.remove(caller, size)

    def _close_heaviest_above(self, limit_bytes: int) -> None:
        # What closing connections hold goes answer by answer: it must not have the next one closed meanwhile.
        going = sum(self._bytes[each] for each in self._closing)
        if self._tcp_bytes - going > limit_bytes:
            staying = (each for each in self._bytes if each != UNIX and each not in self._closing)
            heaviest = max(staying, key=self._bytes.__getitem__)
            self._closing.add(heaviest)
            self._disconnect(heaviest)

    def _limit(self, caller: str) -> int:
        return self._bounds.unix_bytes if caller == UNIX else self._bounds.connection_bytes


def _refused(what: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.ANSWERS_UNREAD, f"{what}: read them first"))


def _dropped(what: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.ANSWER_DROPPED, f"{what}, and this one is dropped: its call has run"))
