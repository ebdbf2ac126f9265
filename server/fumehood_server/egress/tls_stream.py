"""TLS over a stream, by memory BIOs (`ssl.MemoryBIO`).

Not the event loop's TLS: uvloop's drops bytes that were received and not yet read when the peer closes while reading
is paused, which is how any server ends a response that is longer than the buffers.
"""

from __future__ import annotations

import ssl

from fumehood_server.egress.messages import MAX_PIECE_BYTES
from fumehood_server.egress.stream import Stream


class TlsStream:
    """A TLS client `Stream` over a plain one."""

    def __init__(self, plain: Stream, context: ssl.SSLContext, name: str) -> None:
        """Nothing is sent before `handshake`. The certificate must be for `name`."""
        self._plain = plain
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    async def handshake(self) -> None:
        """Agree on keys and verify the certificate. Bounded by whoever awaits it.

        Raises:
            OSError: it did not work; an `ssl.SSLError` says why.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise ConnectionResetError("the other side closed the connection") from None
            else:
                await self._flush()
                return

    async def receive_some(self) -> bytes:
        """See `Stream`. A close without close_notify ends it as well: HTTP's framing tells if the body is whole."""
        while True:
            try:
                return self._tls.read(MAX_PIECE_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()  # an answer to a change of keys
                if not await self._fill():
                    return b""
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def send_all(self, data: bytes) -> None:
        """See `Stream`."""
        self._tls.write(data)
        await self._flush()

    def send_eof(self) -> None:
        """See `Stream`. Does nothing: TLS has no half-close, and HTTP's framing tells where a request ends."""

    async def close_gracefully(self) -> None:
        """See `Stream`."""
        await self._plain.close_gracefully()

    def abort(self) -> None:
        """See `Stream`."""
        self._plain.abort()

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._plain.send_all(data)

    async def _fill(self) -> bool:
        """Receive more ciphertext. False at the end of the stream."""
        data = await self._plain.receive_some()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)
