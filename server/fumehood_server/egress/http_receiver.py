"""The receiving half of an HTTP/1.1 connection: heads and plain bodies by h11, chunked bodies by our own decoder.

Whatever is received takes the event loop for a millisecond at most: header fields are counted before h11 sees them, and
a body that comes in very small pieces is read in turns.
"""

from __future__ import annotations

import re

import h11

from fumehood_server.egress.chunked import ChunkedDecoder
from fumehood_server.egress.messages import MAX_PIECE_BYTES
from fumehood_server.egress.stream import Stream
from fumehood_server.egress.turns import PluginTurns
from fumehood_server.model.plugin_requests import MAX_HEADER_FIELDS

CHUNKS_AT_ONCE = 64
"""Chunks that are decoded without waiting for a turn (0.1 ms). With chunks of 1 KiB and more, all that one read has."""
CHUNKS_IN_A_TURN = 512

_HEAD_END = re.compile(rb"\n\r?\n")
_MAX_HEAD_LINES = MAX_HEADER_FIELDS + 2
"""With the start line and the empty one."""
_FIELDS_TOO_LARGE = 431


class HttpReceiver:
    """Reads one connection's messages: `next_head`, then `read_body` until there is none."""

    def __init__(self, http: h11.Connection, stream: Stream, turns: PluginTurns) -> None:
        """Feed `http` from `stream`."""
        self.eof = False
        """Whether the other side has ended the stream."""
        self._http = http
        self._stream = stream
        self._turns = turns
        self._unread = b""
        """Received, and not given to h11 yet."""
        self._head_lines = 0
        self._head_tail = b""
        self._is_chunked = False
        self._decoder: ChunkedDecoder | None = None
        self._ended = False
        self._piece_bytes = MAX_PIECE_BYTES

    async def next_head(self) -> object:
        """h11's next event that is none of a body.

        Raises:
            h11.RemoteProtocolError: it is no valid head. The status hint 431 stands for one that is too large.
            OSError: the connection broke.
        """
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if not self._unread:
                self._unread = await self._receive()
            self._feed_head()
        if isinstance(event, h11.Request | h11.Response | h11.InformationalResponse):
            self._head_lines = 0
            self._is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        return event

    async def read_body(self) -> bytes:
        """The next bytes of the body, transfer coding undone; none at its end.

        Raises:
            h11.RemoteProtocolError: the body is malformed, or ends too early.
            OSError: the connection broke.
        """
        body = b""
        while not self._ended and not body:
            body = await (self._next_plain() if self._decoder is None else self._next_chunked(self._decoder))
        self._piece_bytes = len(body)
        return body

    def take_unread(self) -> bytes:
        """What was received behind a head that has no body."""
        data, self._unread = self._unread, b""
        return data

    async def _next_plain(self) -> bytes:
        event = self._http.next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            self._ended = True
        elif event is not h11.NEED_DATA:
            raise h11.RemoteProtocolError("the body ends too early")
        elif self._is_chunked:  # h11, which was given none of it, says that there is a body
            self._decoder = ChunkedDecoder()
            self._decoder.feed(self._unread)
        else:
            self._http.receive_data(self._unread or await self._receive_body())
            self._unread = b""
        return b""

    async def _next_chunked(self, decoder: ChunkedDecoder) -> bytes:
        if decoder.hungry:
            data = await self._receive_body()
            if not data:
                raise h11.RemoteProtocolError("the body ends too early")
            decoder.feed(data)
        body = decoder.decode_chunks(CHUNKS_AT_ONCE)
        while not decoder.hungry and not decoder.ended:
            async with self._turns.turn():
                try:
                    body += decoder.decode_chunks(CHUNKS_IN_A_TURN)
                except h11.RemoteProtocolError:
                    if body:
                        break  # what came before the fault is handed out first; the decoder raises it again
                    raise
        self._ended = decoder.ended
        return body

    async def _receive_body(self) -> bytes:
        await self._turns.pace(self._piece_bytes)
        return await self._receive()

    async def _receive(self) -> bytes:
        data = await self._stream.receive_some()
        self.eof = not data
        return data

    def _feed_head(self) -> None:
        """Give h11 what belongs to the head, once its lines are counted: it takes 5 µs for a field of two bytes."""
        data, tail = self._unread, self._head_tail
        found = _HEAD_END.search(tail + data)
        end = len(data) if found is None else found.end() - len(tail)
        self._head_lines += data.count(b"\n", 0, end)
        if self._head_lines > _MAX_HEAD_LINES:
            raise h11.RemoteProtocolError("too many header fields", error_status_hint=_FIELDS_TOO_LARGE)
        self._head_tail = (tail + data)[-2:] if found is None else b""
        self._http.receive_data(data[:end])
        self._unread = data[end:]
