"""The wire's handshake and its defaults, for this runtime and for the adapter of kind `mcp`.

Every plugin's process imports it at its start: what it imports has to be as light.
"""

from __future__ import annotations

from fumehood_sdk.errors import WireError
from fumehood_sdk.wire import sidecar_frames
from fumehood_sdk.wire.framing import FrameReader

PROTOCOL_VERSION = 1
SDK = "fumehood-sdk/0.1.0"
DEFAULT_MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Holds for `Hello` itself, and where it names none."""
DEFAULT_MAX_CALLS = 32
"""Where `Hello` names none."""
CANCEL_REASONS = {1: "deadline", 2: "caller", 3: "shutdown", 4: "limit"}
"""By the numbers of `CancelReason` in plugin.proto."""


def read_hello(reader: FrameReader) -> sidecar_frames.Hello | None:
    """The first frame. None: the stream ended before it, as when a start was given up.

    Raises:
        WireError: it is another frame, or none.
    """
    while True:
        data = reader.next_buffered_frame()
        if data is not None:
            frame = sidecar_frames.decode_frame(data)
            if isinstance(frame, sidecar_frames.Hello):
                return frame
            if frame is not None:
                raise WireError(f"the first frame is {type(frame).__name__}, not Hello")
        elif not reader.fill_buffer():
            return None
