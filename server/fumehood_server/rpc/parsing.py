"""Requests that are not what their method takes: refused in words, instead of by an exception that gRPC reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError, Message

from fumehood_server.errors import Refusal, RefusalReason

MALFORMED: Final = object()
"""Stands for a request whose bytes are no message of its type."""

NOT_UNDERSTOOD = Refusal(RefusalReason.REQUEST_INVALID, "the request is not a message of this method's type")


def parser(message: type[Message]) -> Callable[[bytes], object]:
    """Parses a request, to `MALFORMED` where it can't be."""
    parse = message.FromString

    def parsed(data: bytes) -> object:
        try:
            return parse(data)
        except DecodeError:
            return MALFORMED

    return parsed
