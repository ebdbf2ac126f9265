"""Chunked transfer coding (RFC 9112 section 7.1), undone a bounded number of chunks at a time.

h11 takes 12 µs and four objects for a chunk, however short: a body of one-byte chunks costs as much as one that is
twelve times as long takes here.
"""

from __future__ import annotations

import re

import h11

from fumehood_server.model.plugin_requests import MAX_HEADER_FIELDS

_CRLF = b"\r\n"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\r\n]*)?[ \t]*\r\n")
"""A chunk's size; its extensions are left out. h11 takes a CR within them, which others take for the line's end."""
_MAX_SIZE_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 64 * 1024


class ChunkedDecoder:
    """Decodes one body: `feed` what was received, then `decode_chunks` until it is hungry or has ended."""

    __slots__ = ("_at", "_data", "_ended_chunk", "_left", "_trailer_bytes", "_trailer_fields", "ended", "hungry")

    def __init__(self) -> None:
        """Nothing is fed yet."""
        self.ended = False
        """Whether the last chunk and the trailer were read. What was fed after them is left alone."""
        self.hungry = True
        """Whether nothing more can be decoded before more is fed."""
        self._data = b""
        self._at = 0
        self._left = 0
        self._ended_chunk = False
        self._trailer_fields = -1
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what was received. Never more than 64 KiB at a time, and only when it is hungry."""
        self._data = self._data[self._at :] + data
        self._at = 0
        self.hungry = False

    def decode_chunks(self, limit: int) -> bytes:
        """The content of the next chunks, at most `limit` of them. What came before a fault is returned before it.

        Raises:
            h11.RemoteProtocolError: it is no chunked body.
        """
        pieces: list[bytes] = []
        try:
            for _ in range(limit):
                if self.hungry or self.ended:
                    break
                self._step(pieces)
        except h11.RemoteProtocolError:
            if not pieces:
                raise
        return b"".join(pieces)

    def _step(self, pieces: list[bytes]) -> None:
        """Decode one chunk, or as much of it as there is."""
        if not self._left and not self._read_size():
            return
        at = self._at
        piece = self._data[at : at + self._left]
        if piece:
            pieces.append(piece)
            self._at = at + len(piece)
            self._left -= len(piece)
        if self._left:
            self.hungry = True
        else:
            self._ended_chunk = True

    def _read_size(self) -> bool:
        """Read on to the content of a chunk. False: there is not enough, or there are no more chunks."""
        if self._ended_chunk:
            mark = self._data[self._at : self._at + 2]
            if mark != _CRLF:
                return self._wait_or_refuse(can_go_on=_CRLF.startswith(mark))
            self._at += 2
            self._ended_chunk = False
        if self._trailer_fields < 0:
            line = _SIZE_LINE.match(self._data, self._at)
            if line is None:
                rest = self._data[self._at : self._at + _MAX_SIZE_LINE_BYTES]
                return self._wait_or_refuse(can_go_on=len(rest) < _MAX_SIZE_LINE_BYTES and b"\n" not in rest)
            self._at = line.end()
            self._left = int(line[1], 16)
            if self._left:
                return True
            self._trailer_fields = 0
        return self._skip_trailer()

    def _skip_trailer(self) -> bool:
        while (end := self._data.find(b"\n", self._at)) >= 0:
            line = self._data[self._at : end]
            if line in {b"", b"\r"}:
                self._at = end + 1
                self.ended = True
                return False
            if self._trailer_fields >= MAX_HEADER_FIELDS or b":" not in line:
                return self._wait_or_refuse(can_go_on=False)  # and again, where what came before it is returned first
            self._at = end + 1
            self._trailer_fields += 1
            self._trailer_bytes += len(line)
        unread = len(self._data) - self._at
        return self._wait_or_refuse(can_go_on=self._trailer_bytes + unread <= _MAX_TRAILER_BYTES)

    def _wait_or_refuse(self, *, can_go_on: bool) -> bool:
        if not can_go_on:
            raise h11.RemoteProtocolError("the chunked body is malformed, or has too many trailer fields")
        self.hungry = True
        return False
