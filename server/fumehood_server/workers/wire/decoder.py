"""Cuts a hostile stream of bytes into frames, in bounded memory and linear time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from fumehood_server.workers.wire.varint import MAX_LENGTH_BYTES

_MORE = 0x80
_BITS = 0x7F
_UNKNOWN = -1


class FrameFault(StrEnum):
    """What is wrong with a stream of frames. The values are stable: they appear in errors as `details.violation`."""

    LENGTH_TOO_LONG = "length_too_long"
    """The length prefix goes on after `MAX_LENGTH_BYTES` bytes."""
    FRAME_TOO_LARGE = "frame_too_large"
    """The length is over the cap. Known from the prefix alone: nothing of the frame was kept."""


class FrameError(Exception):
    """The stream is not one of frames. Its sender must mend it; nothing after this point can be read."""

    def __init__(self, fault: FrameFault, problem: str) -> None:
        """Keep which rule was broken, and how."""
        super().__init__(problem)
        self.fault = fault
        self.problem = problem


class FrameDecoder:
    """An incremental decoder. Feed it what was read, in pieces of any size, and take the frames out.

    It holds at most one unfinished frame, so no more than `max_frame_bytes` and the piece that was fed last. Each
    byte is copied a bounded number of times, however small the pieces are.
    """

    __slots__ = ("_buffer", "_max", "_need")

    def __init__(self, max_frame_bytes: int) -> None:
        """`max_frame_bytes` caps one frame, its length prefix not counted."""
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._need = 0
        """How long the buffer must be before looking at it again is of use."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has begun and is not whole."""
        return len(self._buffer)

    def decode_frames(self, data: bytes) -> Iterator[bytes]:
        """Yield each frame that is whole now, empty ones included, in order. Run it to its end before feeding more.

        Raises:
            FrameError: after the frames before the fault were yielded. The decoder can't be used any more.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._need:
                return
            data = bytes(buffer)
            buffer.clear()
        position = 0
        end = len(data)
        while position < end:
            start, length = self._read_length(data, position, end)
            if length == _UNKNOWN:
                self._need = 0
                break
            if start + length > end:
                self._need = start - position + length
                break
            position = start + length
            yield data[start:position]
        if position < end:
            buffer += data[position:] if position else data

    def _read_length(self, data: bytes, position: int, end: int) -> tuple[int, int]:
        """Where the frame's payload begins, and its length; the length is `_UNKNOWN` when the prefix is not whole."""
        byte = data[position]
        length = byte & _BITS
        shift = 7
        start = position + 1
        while byte & _MORE:
            if start - position >= MAX_LENGTH_BYTES:
                raise FrameError(
                    FrameFault.LENGTH_TOO_LONG, f"a frame's length prefix is longer than {MAX_LENGTH_BYTES} bytes"
                )
            if start == end:
                return start, _UNKNOWN
            byte = data[start]
            length |= (byte & _BITS) << shift
            shift += 7
            start += 1
        if length > self._max:
            raise FrameError(FrameFault.FRAME_TOO_LARGE, f"a frame of {length} bytes is over the cap of {self._max}")
        return start, length
