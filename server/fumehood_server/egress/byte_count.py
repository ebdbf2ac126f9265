"""Byte count of one request, and a stream that adds to it and caps what is received."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.stream import Stream


@dataclass(slots=True)
class ByteCount:
    """Bytes of one request, on all its hops."""

    sent: int = 0
    received: int = 0


class CountedStream:
    """A stream that counts its bytes, and fails above a cap on those received."""

    def __init__(self, stream: Stream, byte_count: ByteCount, max_received_bytes: int) -> None:
        """Add to `byte_count`, which may hold the bytes of earlier hops."""
        self._stream = stream
        self._tally = byte_count
        self._max_received_bytes = max_received_bytes

    async def receive_some(self) -> bytes:
        """See `Stream`.

        Raises:
            EgressFailedError: `RESPONSE_TOO_LARGE`.
            OSError: the connection broke.
        """
        data = await self._stream.receive_some()
        self._tally.received += len(data)
        if self._tally.received > self._max_received_bytes:
            raise EgressFailedError(
                Reason.RESPONSE_TOO_LARGE, f"more than {self._max_received_bytes} bytes came over the network"
            )
        return data

    async def send_all(self, data: bytes) -> None:
        """See `Stream`."""
        self._tally.sent += len(data)
        await self._stream.send_all(data)

    def send_eof(self) -> None:
        """See `Stream`."""
        self._stream.send_eof()

    async def close_gracefully(self) -> None:
        """See `Stream`."""
        await self._stream.close_gracefully()

    def abort(self) -> None:
        """See `Stream`."""
        self._stream.abort()
