"""The byte level of the plugin wire: length-prefixed frames, whatever is in them."""

from fumehood_server.workers.wire.decoder import FrameDecoder, FrameError, FrameFault
from fumehood_server.workers.wire.varint import MAX_LENGTH_BYTES, prefixed

__all__ = ["MAX_LENGTH_BYTES", "FrameDecoder", "FrameError", "FrameFault", "prefixed"]
