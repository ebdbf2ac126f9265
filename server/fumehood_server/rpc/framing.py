"""Joins serialised messages without parsing them again (protobuf encoding: tag, length, bytes).

A message may be written as the concatenation of the serialised forms of its parts; fields that did not change since
the last call, such as the receipt of a worker, are so serialised once.
"""

from __future__ import annotations

_LENGTH_DELIMITED = 2
_MORE = 0x80


def tag(number: int) -> bytes:
    """The tag of a field that holds a message."""
    return _varint(number << 3 | _LENGTH_DELIMITED)


def field(tag: bytes, message: bytes) -> bytes:
    """A field with this tag that holds the message `message`, serialised."""
    return tag + _varint(len(message)) + message


def _varint(value: int) -> bytes:
    if value < _MORE:
        return bytes((value,))
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
