"""Reads server-sent events (WHATWG HTML, 9.2): the data of each, up to a size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class TooLongError(Exception):
    """An event has more bytes than are taken."""


class Lines(Protocol):
    """A response whose lines are read one by one."""

    def readline(self, limit: int = -1, /) -> bytes:
        """A line with its end; what there is of it at the limit or the end of the response; b"" after that."""


def events(lines: Lines, max_bytes: int) -> Iterator[bytes]:
    """The data of each event, until the response ends. What is cut off by its end is no event.

    Raises:
        TooLongError: an event is larger than `max_bytes`.
        OSError: the connection broke.
    """
    data: list[bytes] = []
    size = 0
    while line := lines.readline(max_bytes + 1):
        if len(line) > max_bytes:
            raise TooLongError
        text = line.rstrip(b"\r\n")
        if not text:
            if data:
                yield b"\n".join(data)
            data, size = [], 0
            continue
        field, _, value = text.partition(b":")
        if field == b"data":
            value = value[1:] if value[:1] == b" " else value
            data.append(value)
            size += len(value) + 1
            if size > max_bytes:
                raise TooLongError
