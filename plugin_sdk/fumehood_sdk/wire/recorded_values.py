# ruff: noqa: PLR2004 - the numbers are the tags of fields, as in `sidecar_frames`
"""Encodes and decodes the values that calls take from outside: `RecordedValues` and `Replay`. Imported when needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fumehood_sdk.wire import varint
from fumehood_sdk.wire.fields import bytes_field, decode_text, number_field, skip_field, text_field, value_span
from fumehood_sdk.wire.plugin_frames import delimited_frame

RECORDED_VALUES = 0x3A
"""Tag of the frame."""


class RecordedValue(NamedTuple):
    """One value that a call took from outside, or the error that it got in its place, both as JSON."""

    kind: str
    name: str
    number: int
    value_json: str = ""
    error_json: str = ""


def encode_value(value: RecordedValue) -> bytes:
    """Encode a `RecordedValue` as a field of `RecordedValues`."""
    return bytes_field(
        0x12,
        text_field(0x0A, value.kind)
        + text_field(0x12, value.name)
        + number_field(0x18, value.number)
        + text_field(0x22, value.value_json)
        + text_field(0x2A, value.error_json),
    )


def encode_frame(invocation_id: int, encoded: Iterable[bytes], left_out: int) -> bytes:
    """Encode `RecordedValues` as a frame with its length before it."""
    body = number_field(0x08, invocation_id) + b"".join(encoded) + number_field(0x18, left_out)
    return delimited_frame(RECORDED_VALUES, body)


def decode_replay(data: bytes) -> list[RecordedValue]:
    """Decode a `Replay`.

    Raises:
        WireError: the bytes are not a message of protobuf's encoding.
    """
    found = []
    position, size = 0, len(data)
    while position < size:
        if data[position] == 0x0A:
            start, position = value_span(data, position + 1, size)
            found.append(_decode_value(data, start, position))
        else:
            position = skip_field(data, position, size)
    return found


def _decode_value(data: bytes, position: int, end: int) -> RecordedValue:
    texts = dict.fromkeys(_TEXTS.values(), "")
    number = 0
    while position < end:
        tag = data[position]
        if tag in _TEXTS:
            start, position = value_span(data, position + 1, end)
            texts[_TEXTS[tag]] = decode_text(data, start, position)
        elif tag == 0x18:
            number, position = varint.decode(data, position + 1, end)
        else:
            position = skip_field(data, position, end)
    return RecordedValue(number=number, **texts)


_TEXTS = {0x0A: "kind", 0x12: "name", 0x22: "value_json", 0x2A: "error_json"}
