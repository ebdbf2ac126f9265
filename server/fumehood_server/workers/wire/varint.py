"""Protobuf's delimited form: a message's length as a varint, then the message."""

from __future__ import annotations

MAX_LENGTH_BYTES = 5
"""Longest length prefix that is read. Five bytes hold every length that protobuf allows (2 GiB)."""

_MORE = 0x80
_BITS = 0x7F
_SHORT = tuple(bytes((length,)) for length in range(_MORE))


def prefixed(payload: bytes) -> bytes:
    """The payload as one frame."""
    length = len(payload)
    if length < _MORE:
        return _SHORT[length] + payload
    prefix = bytearray()
    while length >= _MORE:
        prefix.append(length & _BITS | _MORE)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + payload
