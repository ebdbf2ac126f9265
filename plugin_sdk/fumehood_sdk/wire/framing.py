"""Length-delimited framing of protobuf messages in a stream of bytes: each preceded by its length as a varint."""

from __future__ import annotations

from collections.abc import Callable

from fumehood_sdk.errors import WireError
from fumehood_sdk.wire import varint

READ_BYTES = 65536
"""As much as a pipe holds by default (pipe(7)), so that one read(2) takes all the frames that wait."""
_MAX_PREFIX_BYTES = 5
"""The cap on frames is a 32-bit number."""


class FrameReader:
    """Reads frames from a source of bytes.

    Not safe for several threads at a time: the leader of the engine's threads owns it.
    """

    __slots__ = ("_buffer", "_position", "_read", "max_frame_bytes")

    def __init__(self, read: Callable[[int], bytes], max_frame_bytes: int) -> None:
        """`read` returns up to that many bytes, waiting for at least one, and none at the end.

        It is asked for `READ_BYTES`, or for what is missing of a frame if that is more.
        """
        self._read = read
        self._buffer = b""
        self._position = 0
        self.max_frame_bytes = max_frame_bytes

    @property
    def has_buffered_bytes(self) -> bool:
        """Whether anything was read beyond the last frame."""
        return self._position < len(self._buffer)

    def next_buffered_frame(self) -> bytes | None:
        """Take the next frame if all of it was read already. None: it must be read first.

        Raises:
            WireError: the next frame is larger than the cap, or its length can't be read.
        """
        buffer = self._buffer
        start = self._position
        available = len(buffer) - start
        if not available:
            return None
        length = buffer[start]
        start += 1
        if length >= varint.CONTINUES:
            found = self._long_length(buffer, start - 1)
            if found is None:
                return None
            length, start = found
        end = start + length
        if length > self.max_frame_bytes:
            raise WireError(f"a frame of {length} bytes exceeds the cap of {self.max_frame_bytes}")
        if end > len(buffer):
            return None
        self._position = end
        return buffer[start:end]

    def fill_buffer(self) -> bool:
        """Read more, waiting for it. False at the end of the stream.

        Raises:
            WireError: the stream ends within a frame.
        """
        rest = self._buffer[self._position :]
        self._position = 0
        if not rest:
            self._buffer = self._read(READ_BYTES)
            return bool(self._buffer)
        chunks = [rest]
        missing = self._missing(rest)
        while missing > 0:
            chunk = self._read(max(missing, READ_BYTES))
            if not chunk:
                raise WireError("the stream ended within a frame")
            chunks.append(chunk)
            missing -= len(chunk)
        self._buffer = b"".join(chunks)
        return True

    def _missing(self, rest: bytes) -> int:
        """How many bytes of the frame that has begun are known to be missing: its chunks are joined once."""
        found = self._long_length(rest, 0)
        if found is None:
            return 1
        length, start = found
        return min(length, self.max_frame_bytes) - (len(rest) - start)

    def _long_length(self, buffer: bytes, start: int) -> tuple[int, int] | None:
        end = min(len(buffer), start + _MAX_PREFIX_BYTES)
        for here in range(start, end):
            if buffer[here] < varint.CONTINUES:
                return varint.decode(buffer, start, here + 1)
        if end - start == _MAX_PREFIX_BYTES:
            raise WireError("the length of a frame does not end")
        return None
