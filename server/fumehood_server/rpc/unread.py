"""Memory of answers that callers have not read: counted for each caller and in total, until gRPC has sent them.

gRPC keeps an answer until its stream's flow-control window takes it, and nothing of it says that a stream can be given
up: so calls are refused before they make more, and a TCP connection that holds too much is closed.
"""

from __future__ import annotations

from collections.abc import Callable

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


class UnreadAnswers:
    """What each caller has not read, by gRPC's name for its peer. For one event loop."""

    __slots__ = ("_bytes", "_closing", "_disconnect", "_tcp_bytes")

    def __init__(self, disconnect: Callable[[str], None]) -> None:
        """`disconnect` closes the connection of a TCP peer. It must not block."""
        self._disconnect = disconnect
        self._bytes: dict[str, int] = {}
        self._tcp_bytes = 0
        self._closing: set[str] = set()

    def check(self, caller: str) -> None:
        """Whether the caller may begin a call.

        Raises:
            RefusedError: too much of what it was answered, or of what all TCP callers were, is unread.
        """
        own = self._bytes.get(caller, 0)
        if own and own >= _limit(caller):
            raise _refused(f"{own:,} bytes of answers to this caller are unread")
        if caller != UNIX and self._tcp_bytes >= MAX_TCP_BYTES:
            raise _refused(f"{self._tcp_bytes:,} bytes of answers are unread by all callers over TCP")

    def add(self, caller: str, size: int) -> None:
        """Count an answer that is about to be sent, until `remove`.

        Raises:
            RefusedError: there is no room: drop it.
        """
        own = self._bytes.get(caller, 0)
        # A caller that has read all can have any one answer.
        if own and own + size > _limit(caller) + MARGIN_BYTES:
            raise _dropped(f"{own:,} bytes of answers to this caller are unread")
        if caller != UNIX:
            if self._tcp_bytes + size > MAX_TCP_BYTES + MARGIN_BYTES:
                raise _dropped(f"{self._tcp_bytes:,} bytes of answers are unread over TCP")
            self._tcp_bytes += size
        self._bytes[caller] = own + size
        if caller != UNIX:
            self._close_heaviest_above(CLOSE_ABOVE_BYTES)

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

    def _close_heaviest_above(self, limit_bytes: int) -> None:
        # What closing connections hold goes answer by answer: it must not have the next one closed meanwhile.
        going = sum(self._bytes[each] for each in self._closing)
        if self._tcp_bytes - going > limit_bytes:
            staying = (each for each in self._bytes if each != UNIX and each not in self._closing)
            heaviest = max(staying, key=self._bytes.__getitem__)
            self._closing.add(heaviest)
            self._disconnect(heaviest)


def _limit(caller: str) -> int:
    return MAX_UNIX_BYTES if caller == UNIX else MAX_CONNECTION_BYTES


def _refused(what: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.ANSWERS_UNREAD, f"{what}: read them first"))


def _dropped(what: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.ANSWER_DROPPED, f"{what}, and this one is dropped: its call has run"))
