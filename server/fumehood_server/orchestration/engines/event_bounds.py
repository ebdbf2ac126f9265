"""Bounds of one server-sent event: its lines, its bytes, and what its JSON holds."""

from __future__ import annotations

import re

from fumehood_server.model.json_counts import MAX_NODES, too_much_of

MAX_EVENT_LINES = 64
"""Of one event, which has one or two."""
MAX_EVENT_BYTES = 1024 * 1024
"""Likewise: as much as a server may say at once that doesn't stream."""


class EventBounds:
    """Counts lines and bytes of each event: an SDK copies an event anew for each line that comes.

    Counts what the JSON of an event holds, before the SDK has its end and parses it in one go.
    """

    __slots__ = ("_bytes", "_last", "_lines", "_pieces")

    def __init__(self) -> None:
        """At the beginning of a stream."""
        self._last = b""
        """As much as a blank line may have begun in."""
        self._lines = self._bytes = 0
        self._pieces: list[bytes] = []
        """Of the event that has begun."""

    def take(self, piece: bytes) -> bool:
        """Whether the stream keeps to the bounds with its next piece, which is short."""
        window, carried = self._last + piece, len(self._last)
        self._last = window[-3:]
        blank = _BLANK_LINE.search(window)
        if blank is None:
            self._add(piece)
            return self._is_within()
        # The event that ends here, then the one that begins last: those between are as small as the piece.
        self._add(window[carried : blank.end()])
        ended_well = self._is_within() and self.end()
        rest = window[max(window.rfind(each) + len(each) for each in _BLANK_LINES if each in window) :]
        self._lines = self._bytes = 0
        self._pieces.clear()
        self._add(rest)
        return ended_well

    def end(self) -> bool:
        """Whether what has begun may end here, so that it is parsed. SDKs parse what ends with the stream too."""
        if self._bytes <= MAX_NODES:
            return True
        # JSON's texts end with their line: in JSON they do, and what stands in other lines opens none.
        return not too_much_of(*_LINE_END.split(b"".join(self._pieces)))

    def _add(self, piece: bytes) -> None:
        self._lines += piece.count(b"\n") + piece.count(b"\r")
        self._bytes += len(piece)
        self._pieces.append(piece)

    def _is_within(self) -> bool:
        return self._lines <= MAX_EVENT_LINES and self._bytes <= MAX_EVENT_BYTES


_BLANK_LINES = (b"\n\n", b"\r\r", b"\r\n\r\n")
_BLANK_LINE = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_LINE_END = re.compile(rb"[\r\n]")


__all__ = ["MAX_EVENT_BYTES", "MAX_EVENT_LINES", "EventBounds"]
