"""Connections: how one is dialled, and what is counted on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from fumehood_server.egress.addresses import IPAddress
from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.messages import MAX_PIECE_BYTES

_FINISH_S = 2.0
"""For a peer to take the last bytes. One that does not want them by then is cut off."""


class Stream(Protocol):
    """Bytes both ways. Errors of the network are `OSError`."""

    async def read(self) -> bytes:
        """The next bytes, at most `MAX_PIECE_BYTES`; none at the end."""

    async def write(self, data: bytes) -> None:
        """Send bytes, and wait while the peer does not take them."""

    def write_eof(self) -> None:
        """Say that nothing more comes from this side."""

    async def finish(self) -> None:
        """Hand over what was written, wait a moment for the peer to end as well, then close. Never raises `OSError`."""

    def close(self) -> None:
        """End the connection at once; what was not sent is lost. May be called again."""


class Dialler(Protocol):
    """Connects to addresses. The only thing in the broker that reaches the network, but for the resolver."""

    async def dial(self, address: IPAddress, port: int, *, tls_name: str | None) -> Stream:
        """Connect to exactly that address. With `tls_name`, over TLS with a certificate for that name.

        Cancelling closes what was opened.

        Raises:
            EgressFailedError: `CONNECT_FAILED` or `TLS_FAILED`.
        """


class TcpStream:
    """A `Stream` over asyncio's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take over both."""
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """See `Stream`."""
        return await self._reader.read(MAX_PIECE_BYTES)

    async def write(self, data: bytes) -> None:
        """See `Stream`."""
        self._writer.write(data)
        await self._writer.drain()

    def write_eof(self) -> None:
        """See `Stream`."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def finish(self) -> None:
        """See `Stream`. Reading on matters: closing with unread bytes resets the connection, and the answer with it."""
        try:
            async with asyncio.timeout(_FINISH_S):
                self.write_eof()
                while await self.read():
                    pass
                self._writer.close()
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            return
        finally:
            self.close()

    def close(self) -> None:
        """See `Stream`. Aborts: a polite TLS goodbye would wait for a peer that may be hostile."""
        self._writer.transport.abort()


@dataclass(slots=True)
class Tally:
    """Bytes of one request on all its connections."""

    sent: int = 0
    received: int = 0


class MeteredStream:
    """A stream whose bytes are counted, and which ends when too many came."""

    def __init__(self, stream: Stream, tally: Tally, max_received_bytes: int) -> None:
        """Count in `tally`, which may have counted before."""
        self._stream = stream
        self._tally = tally
        self._max_received_bytes = max_received_bytes

    async def read(self) -> bytes:
        """See `Stream`.

        Raises:
            EgressFailedError: `RESPONSE_TOO_LARGE`.
            OSError: the connection broke.
        """
        data = await self._stream.read()
        self._tally.received += len(data)
        if self._tally.received > self._max_received_bytes:
            raise EgressFailedError(
                Reason.RESPONSE_TOO_LARGE, f"more than {self._max_received_bytes} bytes came over the network"
            )
        return data

    async def write(self, data: bytes) -> None:
        """See `Stream`."""
        self._tally.sent += len(data)
        await self._stream.write(data)

    def write_eof(self) -> None:
        """See `Stream`."""
        self._stream.write_eof()

    async def finish(self) -> None:
        """See `Stream`."""
        await self._stream.finish()

    def close(self) -> None:
        """See `Stream`."""
        self._stream.close()
