"""Frames are cut alike however their bytes arrive, hostile bytes are refused, and numbers stay what they are."""

from __future__ import annotations

from fumehood_sdk.errors import WireError
from fumehood_sdk.wire import varint
from fumehood_sdk.wire.framing import FrameReader
from hypothesis import given
from hypothesis import strategies as st

from .client import delimited


@given(st.lists(st.binary(max_size=300)), st.data())
def test_frames_are_cut_alike_however_the_bytes_arrive(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(delimited, messages))
    assert read_all(stream, data, cap=300) == messages


@given(st.binary(max_size=100), st.data())
def test_hostile_streams_end_in_frames_and_at_most_one_error(stream: bytes, data: st.DataObject) -> None:
    try:
        messages = read_all(stream, data, cap=50)
    except WireError:
        return
    assert b"".join(map(delimited, messages)) == stream or sum(map(len, messages)) < len(stream)
    assert all(len(message) <= 50 for message in messages)


@given(st.integers(0, 2**64 - 1))
def test_numbers_survive(value: int) -> None:
    encoded = varint.encode(value)
    assert varint.decode(b"\x00" + encoded + b"\x00", 1, len(encoded) + 1) == (value, len(encoded) + 1)


def read_all(stream: bytes, data: st.DataObject, *, cap: int) -> list[bytes]:
    """Read a stream that arrives in pieces of every size."""
    position = 0

    def read(size: int) -> bytes:
        nonlocal position
        piece = stream[position : position + data.draw(st.integers(1, max(1, min(size, len(stream) - position))))]
        position += len(piece)
        return piece

    reader = FrameReader(read, cap)
    messages = []
    while True:
        message = reader.next_buffered_frame()
        if message is not None:
            messages.append(message)
        elif not reader.fill_buffer():
            return messages
