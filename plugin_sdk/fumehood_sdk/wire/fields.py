"""Fields of protobuf's binary encoding: a tag of number and wire type, then a varint or a length and bytes."""

from __future__ import annotations

from fumehood_sdk.errors import WireError
from fumehood_sdk.wire import varint

_VARINT, _FIXED64, LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
"""Wire types. Groups (3 and 4) are of proto2 alone and refused."""
_NANOS_PER_S = 1e9


def encode_text(value: str) -> bytes:
    """UTF-8 of a string. A lone surrogate, which UTF-8 can't hold, becomes a question mark."""
    return value.encode("utf-8", "replace")


def number_field(tag: int, value: int) -> bytes:
    """Encode a number as a field. Nothing for 0, as proto3 has it."""
    return bytes((tag,)) + varint.encode(value) if value else b""


def bytes_field(tag: int, value: bytes) -> bytes:
    """Encode bytes, text or a message as a field, an empty one too."""
    return field_head(tag, value) + value


def optional_bytes_field(tag: int, value: bytes) -> bytes:
    """Encode bytes or text as a field. Nothing when empty, as proto3 has it."""
    return field_head(tag, value) + value if value else b""


def text_field(tag: int, value: str) -> bytes:
    """Encode text as a field. Nothing when empty, as proto3 has it."""
    return optional_bytes_field(tag, encode_text(value))


def field_head(tag: int, value: bytes) -> bytes:
    """Encode the tag and the length that stand before a field's bytes."""
    return bytes((tag,)) + varint.encode(len(value))


def decode_text(data: bytes, start: int, end: int) -> str:
    """Decode a string.

    Raises:
        WireError: it is not UTF-8.
    """
    try:
        return str(data[start:end], "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("a string is not UTF-8") from error


def decode_duration(data: bytes, position: int, end: int) -> float:
    """Decode a `google.protobuf.Duration` into seconds."""
    seconds = nanos = 0
    while position < end:
        tag = data[position]
        if tag == 0x08:  # noqa: PLR2004 - the tag of a field
            seconds, position = varint.decode(data, position + 1, end)
        elif tag == 0x10:  # noqa: PLR2004
            nanos, position = varint.decode(data, position + 1, end)
        else:
            position = skip_field(data, position, end)
    return _signed(seconds) + _signed(nanos) / _NANOS_PER_S


def value_span(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Start and end of a value whose length comes first.

    Raises:
        WireError: it goes on behind `end`.
    """
    if position < end and data[position] < varint.CONTINUES:
        start = position + 1
        stop = start + data[position]
    else:
        length, start = varint.decode(data, position, end)
        stop = start + length
    if stop > end:
        raise WireError("a field is longer than its message")
    return start, stop


def skip_field(data: bytes, position: int, end: int) -> int:
    """Return the position behind a field that is not known, which begins with its tag at `position`.

    Raises:
        WireError: it is malformed.
    """
    tag, position = varint.decode(data, position, end)
    kind = tag & 7
    if tag >> 3 == 0:
        raise WireError("a field has no number")
    if kind == _VARINT:
        return varint.decode(data, position, end)[1]
    if kind == LENGTH_DELIMITED:
        return value_span(data, position, end)[1]
    if kind not in (_FIXED64, _FIXED32):
        raise WireError(f"a field is of the unknown wire type {kind}")
    position += 8 if kind == _FIXED64 else 4
    if position > end:
        raise WireError("a field is longer than its message")
    return position


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
