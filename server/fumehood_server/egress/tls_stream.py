"""TLS over a plain connection, in memory.

Not the event loop's own: uvloop's loses what has come and was not read yet when the other side closes while reading is
paused, which is how any server ends a response that is longer than the buffers.
"""

from __future__ import annotations

import ssl

from fumehood_server.egress.messages import MAX_PIECE_BYTES
from fumehood_server.egress.stream import Stream


class TlsStream:
    """A `Stream` over another one."""

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

    async def read(self) -> bytes:
        """See `Stream`. A close without a goodbye is an end as well: whether all is there, HTTP tells."""
        while True:
            try:
                return self._tls.read(MAX_PIECE_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()  # an answer to a change of keys
                if not await self._fill():
                    return b""
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        """See `Stream`."""
        self._tls.write(data)
        await self._flush()

    def write_eof(self) -> None:
        """See `Stream`. TLS has no half of a connection to close: what was sent says by itself where it ends."""

    async def finish(self) -> None:
        """See `Stream`."""
        await self._plain.finish()

    def close(self) -> None:
        """See `Stream`."""
        self._plain.close()

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._plain.write(data)

    async def _fill(self) -> bool:
        """Take in what comes next. False: nothing does any more."""
        data = await self._plain.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return bool(data)
