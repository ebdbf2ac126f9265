"""Reads server-sent events (WHATWG HTML, 9.2): the data of messages, up to a size, and where a stream would go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

MAX_ID_BYTES = 1024
"""Of an event's id, which is sent back as a header field. A longer one counts as none."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MESSAGE_TYPES = (b"", b"message")
"""Without a type an event is a message. Others are for somebody else: some frameworks send `ping`, to be heard."""


class TooLongError(Exception):
    """An event has more bytes than are taken."""


class Lines(Protocol):
    """A response whose lines are read one by one."""

    def readline(self, limit: int = -1, /) -> bytes:
        """A line with its end; what there is of it at the limit or the end of the response; b"" after that."""


class StreamPosition:
    """How far a stream has been read, over one response and those that resume it."""

    __slots__ = ("last_event_id", "retry_ms")

    def __init__(self) -> None:
        """At its beginning."""
        self.last_event_id = b""
        """Of the last whole event that had one. Empty: there is none, and nothing to resume by."""
        self.retry_ms: int | None = None
        """How long the server wants to be left alone before the stream is resumed."""


def events(lines: Lines, max_bytes: int, position: StreamPosition) -> Iterator[bytes]:
    """The data of each event of the type `message`, until the response ends. What is cut off by its end is no event.

    A line ends with LF or CRLF: no server ends one with CR alone, which the standard takes as well.

    Raises:
        TooLongError: an event is larger than `max_bytes`.
        OSError: the connection broke.
        http.client.HTTPException: likewise.
    """
    data: list[bytes] = []
    last_id = position.last_event_id
    kind = b""
    size = 0
    mark = _BYTE_ORDER_MARK
    while line := lines.readline(max_bytes + 1):
        if len(line) > max_bytes:
            raise TooLongError
        text = line.removeprefix(mark).rstrip(b"\r\n")
        mark = b""
        if not text and line.endswith(b"\n"):
            position.last_event_id = last_id
            if data and kind in _MESSAGE_TYPES:
                yield b"\n".join(data)
            data, kind, size = [], b"", 0
            continue
        field, _, value = text.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            data.append(value)
            size += len(value) + 1
            if size > max_bytes:
                raise TooLongError
        elif field == b"event":
            kind = value
        elif field == b"id" and b"\0" not in value and b"\r" not in value:
            last_id = value if len(value) <= MAX_ID_BYTES else b""
        elif field == b"retry" and value.isdigit():
            position.retry_ms = int(value[:10])
