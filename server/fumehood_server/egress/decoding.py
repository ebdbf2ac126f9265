"""Incremental decompression of gzip and deflate. No more than a piece is held, however much a body grows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from fumehood_server.egress.errors import EgressFailedError, Reason
from fumehood_server.egress.messages import MAX_PIECE_BYTES

_GZIP = 16 + zlib.MAX_WBITS
_MAX_MEMBERS = 1000
"""Of one gzip body (RFC 1952 section 2.2 has them follow each other). Empty ones cost time and yield nothing."""


class Decoder:
    """Decompresses one body: `decode_chunk` for each chunk, then `check_end`."""

    def __init__(self, encoding: str) -> None:
        """`encoding` is one that `decodable` gave back."""
        self._gzip = encoding == "gzip"
        self._zlib = zlib.decompressobj(_GZIP) if self._gzip else None
        self._members = 1
        self._started = False

    def decode_chunk(self, data: bytes) -> Iterator[bytes]:
        """Decode lazily, in pieces of at most `MAX_PIECE_BYTES`.

        Raises:
            EgressFailedError: `ENCODING_INVALID`.
        """
        try:
            while data:
                self._started = True
                data, piece = self._step(data)
                if piece:
                    yield piece
        except zlib.error as error:
            raise EgressFailedError(Reason.ENCODING_INVALID, f"the body can't be decoded: {error}") from error

    def check_end(self) -> None:
        """Check that the body is whole, after its last chunk.

        Raises:
            EgressFailedError: `ENCODING_INVALID`, when it ends in the middle.
        """
        if self._started and self._zlib is not None and not self._zlib.eof:
            raise EgressFailedError(Reason.ENCODING_INVALID, "the encoded body ends too early")

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        """Decode one piece. Returns what is still to be decoded, and the piece."""
        if self._zlib is None:
            self._zlib = _zlib_or_raw(data)
        if self._zlib.eof:
            if not self._gzip or self._members == _MAX_MEMBERS:
                raise zlib.error("something follows its end")
            self._members += 1
            self._zlib = zlib.decompressobj(_GZIP)
        piece = self._zlib.decompress(data, MAX_PIECE_BYTES)
        return self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail, piece


def decodable(encoding: str) -> str:
    """The content encoding if it is one that `Decoder` undoes, else nothing."""
    word = encoding.strip().lower().removeprefix("x-")
    return word if word in {"gzip", "deflate"} else ""


def _zlib_or_raw(data: bytes) -> zlib._Decompress:
    """What decodes `deflate`, which means zlib's form (RFC 9110 section 8.4.1.2); some servers send the bare one.

    The first byte tells: zlib's has 8 as its low half, and no compressor begins a bare stream so.
    """
    return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)  # noqa: PLR2004 - RFC 1950
