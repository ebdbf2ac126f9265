"""Byte streams: the interfaces of a connection and of a dialler, and a stream over TCP."""

from __future__ import annotations

import asyncio
from typing import Protocol

from fumehood_server.egress.addresses import IPAddress
from fumehood_server.egress.messages import MAX_PIECE_BYTES

_FINISH_S = 2.0
"""For a peer to take the last bytes. One that does not want them by then is cut off."""


class Stream(Protocol):
    """Bytes both ways. Errors of the network are `OSError`."""

    async def receive_some(self) -> bytes:
        """The next bytes, at most `MAX_PIECE_BYTES`; none at the end."""

    async def send_all(self, data: bytes) -> None:
        """Send bytes, and wait while the peer does not take them."""

    def send_eof(self) -> None:
        """Half-close: nothing more is sent from this side."""

    async def close_gracefully(self) -> None:
        """Flush, half-close, wait a moment for the peer to close as well, then close. Never raises `OSError`."""

    def abort(self) -> None:
        """Reset the connection at once; what was not sent is lost. May be called again."""


class Dialler(Protocol):
    """Connects to addresses. Nothing else in the broker reaches the network, but for the resolver."""

    async def dial(self, address: IPAddress, port: int, *, tls_name: str | None) -> Stream:
        """Connect to exactly that address. With `tls_name`, over TLS with a certificate for that name.

        Cancelling closes what was opened.

        Raises:
            EgressFailedError: `CONNECT_FAILED` or `TLS_FAILED`.
        """


class TcpStream:
    """A `Stream` over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take over both."""
        self._reader = reader
        self._writer = writer

    async def receive_some(self) -> bytes:
        """See `Stream`."""
        return await self._reader.read(MAX_PIECE_BYTES)

    async def send_all(self, data: bytes) -> None:
        """See `Stream`."""
        self._writer.write(data)
        await self._writer.drain()

    def send_eof(self) -> None:
        """See `Stream`."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def close_gracefully(self) -> None:
        """See `Stream`. Reads to the end: closing with unread bytes resets the connection, and drops the answer."""
        try:
            async with asyncio.timeout(_FINISH_S):
                self.send_eof()
                while await self.receive_some():
                    pass
                self._writer.close()
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            return
        finally:
            self.abort()

    def abort(self) -> None:
        """See `Stream`. Waits for no TLS close_notify, since the peer may be hostile."""
        self._writer.transport.abort()
