"""The frame codec, fed by a stranger."""

from __future__ import annotations

import io
import itertools
import tracemalloc

import pytest
from fumehood.v1 import plugin_pb2
from fumehood_server.workers.wire import FrameDecoder, FrameError, FrameFault, prefixed
from google.protobuf.proto import parse, serialize_length_prefixed
from hypothesis import given
from hypothesis import strategies as st

CAP = 300

payloads = st.lists(st.binary(max_size=CAP), max_size=12)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


def decode(pieces: list[bytes]) -> tuple[list[bytes], FrameFault | None, int]:
    decoder = FrameDecoder(CAP)
    frames: list[bytes] = []
    try:
        for piece in pieces:
            frames.extend(decoder.decode_frames(piece))
            assert decoder.pending_bytes <= CAP + 5
    except FrameError as error:
        # extend() keeps what the iterator gave before it raised.
        return frames, error.fault, 0
    return frames, None, decoder.pending_bytes


@given(payloads, st.lists(st.integers(min_value=0)))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(frames: list[bytes], places: list[int]) -> None:
    stream = b"".join(map(prefixed, frames))
    assert decode(cut(stream, places)) == (frames, None, 0)


@given(st.binary(max_size=2000), st.lists(st.integers(min_value=0)))
def test_any_bytes_give_the_same_frames_and_fault_however_they_are_cut(stream: bytes, places: list[int]) -> None:
    assert decode(cut(stream, places)) == decode([stream])


@given(payloads, st.binary(max_size=CAP), st.integers(min_value=1))
def test_frames_before_an_unfinished_one_are_given_and_it_is_told(frames: list[bytes], last: bytes, drop: int) -> None:
    half = prefixed(last)
    half = half[: len(half) - 1 - drop % len(half)]
    assert decode([b"".join(map(prefixed, frames)) + half]) == (frames, None, len(half))


@given(payloads, st.integers(min_value=CAP + 1, max_value=2**35 - 1))
def test_a_length_over_the_cap_is_refused_before_its_bytes_come(frames: list[bytes], length: int) -> None:
    prefix = bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    assert decode([b"".join(map(prefixed, frames)), bytes(prefix)])[:2] == (frames, FrameFault.FRAME_TOO_LARGE)


@given(st.integers(min_value=5, max_value=40))
def test_a_length_that_does_not_end_is_refused(size: int) -> None:
    assert decode([b"\xff" * size])[1] is FrameFault.LENGTH_TOO_LONG


def test_four_bytes_of_an_unfinished_length_are_waited_for() -> None:
    assert decode([b"\xff" * 4]) == ([], None, 4)


def test_an_empty_frame_is_a_frame() -> None:
    assert decode([b"\0\0"])[0] == [b"", b""]


@given(st.binary(max_size=CAP))
def test_the_form_is_protobufs_own(text: bytes) -> None:
    frame = plugin_pb2.PluginFrame(log=plugin_pb2.Log(message=text.hex()))
    ours = prefixed(frame.SerializeToString())
    theirs = io.BytesIO()
    serialize_length_prefixed(frame, theirs)
    assert ours == theirs.getvalue()
    assert list(FrameDecoder(4096).decode_frames(ours)) == [frame.SerializeToString()]
    assert parse(plugin_pb2.PluginFrame, frame.SerializeToString()) == frame


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_a_large_frame_in_small_pieces_is_not_copied_again_and_again(piece: int) -> None:
    size = 1 << 18
    decoder = FrameDecoder(size)
    stream = prefixed(bytes(size))
    tracemalloc.start()
    try:
        frames = [
            frame for at in range(0, len(stream), piece) for frame in decoder.decode_frames(stream[at : at + piece])
        ]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in frames] == [size]
    assert peak < 4 * size
