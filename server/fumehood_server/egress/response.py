"""Streaming response: its body is decoded, cut into pieces and held to its caps as it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from fumehood_server.egress.access import EgressLimits
from fumehood_server.egress.decoding import Decoder, decodable
from fumehood_server.egress.errors import EgressError, EgressFailedError, Reason
from fumehood_server.egress.exchange import Exchange, ResponseHead
from fumehood_server.egress.headers import end_to_end_headers
from fumehood_server.egress.messages import MAX_PIECE_BYTES, Headers
from fumehood_server.egress.url import Url

_NO_BODY = frozenset({204, 304})


class StreamedResponse:
    """The broker's `EgressResponse`. `ended` is true once the whole body was read, `error` says why it can't be."""

    def __init__(
        self,
        exchange: Exchange,
        head: ResponseHead,
        url: Url,
        *,
        redirects: int,
        has_body: bool,
        decode: bool,
        limits: EgressLimits,
        deadline_s: float,
    ) -> None:
        """Read the body through `exchange`, until `deadline_s` of the loop's clock."""
        encodings = [value for name, value in head.headers if name == "content-encoding"]
        encoding = decodable(encodings[0]) if decode and has_body and len(encodings) == 1 else ""
        undone = {"content-encoding", "content-length"} if encoding else set[str]()
        self.status = head.status
        self.url = str(url)
        self.headers: Headers = tuple(field for field in end_to_end_headers(head.headers) if field[0] not in undone)
        self.redirects = redirects
        self.ended = False
        self.error: EgressError | None = None
        self._exchange = exchange
        self._decoder = Decoder(encoding) if encoding else None
        self._pieces: Iterator[bytes] = iter(())
        self._left = limits.max_response_bytes
        self._max_bytes = limits.max_response_bytes
        self._deadline_s = deadline_s
        self._timeout_s = limits.timeout_s

    def body(self) -> AsyncIterator[bytes]:
        """See `EgressResponse`."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.error is not None:
            raise self.error
        if self.ended:
            raise StopAsyncIteration
        try:
            piece = await self._next_piece()
        except EgressError as error:
            self.error = error
            raise
        if not piece:
            self.ended = True
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """End the connection."""
        await self._exchange.close()

    async def _next_piece(self) -> bytes:
        if not self._left:
            await self._expect_end()
            return b""
        piece = await self._next_decoded()
        if len(piece) > self._left:
            # Hand out what the cap still allows; the next read finds that there is more, and raises.
            self._pieces = iter((piece[self._left :],))
            piece = piece[: self._left]
        self._left -= len(piece)
        return piece

    async def _expect_end(self) -> None:
        if await self._next_decoded():
            raise EgressFailedError(
                Reason.RESPONSE_TOO_LARGE, f"the response's body is longer than {self._max_bytes} bytes"
            )

    async def _next_decoded(self) -> bytes:
        """The next piece of the body, none at its end."""
        while True:
            for piece in self._pieces:
                if self._decoder is not None:
                    await asyncio.sleep(0)  # a small body may decode to many pieces: let other tasks run between them
                return piece
            data = await self._read_encoded()
            if not data:
                if self._decoder is not None:
                    self._decoder.check_end()
                return b""
            if self._decoder is None:
                self._pieces = (data[at : at + MAX_PIECE_BYTES] for at in range(0, len(data), MAX_PIECE_BYTES))
            else:
                self._pieces = self._decoder.decode_chunk(data)

    async def _read_encoded(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await self._exchange.read_body()
        except TimeoutError:
            raise EgressFailedError(Reason.TIMEOUT, f"the body was not whole within {self._timeout_s:g} s") from None


def has_body(method: str, status: int) -> bool:
    """Whether a response can have a body (RFC 9110 section 6.4.1)."""
    return method != "HEAD" and status not in _NO_BODY
