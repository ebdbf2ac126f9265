"""HTTP/2 by hand (RFC 9113), as far as a hostile caller needs it: requests that never end, and windows never opened."""

from __future__ import annotations

import asyncio
import struct

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MAX_FRAME_BYTES = 16_384
_FIRST_WINDOW_BYTES = 65_535


class RawConnection:
    """One connection. It never gives the server credit, beyond `window_bytes` for each stream, to send anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `connect`."""
        self._reader = reader
        self._writer = writer
        self._last_stream = -1
        self._window = _FIRST_WINDOW_BYTES
        self._first_window = _FIRST_WINDOW_BYTES
        self._windows: dict[int, int] = {}
        self._changed = asyncio.Event()
        self.ended: set[int] = set()
        """Streams that the server has ended."""
        self.closed = False
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, target: str, *, window_bytes: int = 0) -> RawConnection:
        """Connect over TCP to `host:port`."""
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, window_bytes)))
        return cls(reader, writer)

    def open_stream(self, path: str) -> int:
        """Begin a gRPC request."""
        self._last_stream += 2
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"soak"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        ]
        # Literal fields without indexing and without Huffman's code (RFC 7541 section 6.2.2).
        block = b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)
        self._writer.write(_frame(_HEADERS, _END_HEADERS, self._last_stream, block))
        self._windows[self._last_stream] = self._first_window
        return self._last_stream

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send as the server takes it. Returns early when it has ended the stream or the connection."""
        while data and not self.closed and stream not in self.ended:
            size = min(len(data), self._window, self._windows[stream], _MAX_FRAME_BYTES)
            if size <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            piece, data = data[:size], data[size:]
            self._window -= size
            self._windows[stream] -= size
            self._writer.write(_frame(_DATA, _END_STREAM if end and not data else 0, stream, piece))
            try:
                await self._writer.drain()
            except ConnectionError:  # closed by the server, as the one that leaves most unread is
                self.closed = True

    async def until_ended(self, stream: int) -> None:
        """Return when the server has ended the stream or the connection."""
        while not self.closed and stream not in self.ended:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """Reset the connection."""
        self._task.cancel()
        self._writer.transport.abort()

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF
                self._take(kind, flags, stream, await self._reader.readexactly(int.from_bytes(head[:3])))
                self._changed.set()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.closed = True
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(body), 6):
                name, value = struct.unpack_from(">HI", body, at)
                if name == _INITIAL_WINDOW_SIZE:
                    self._windows = {each: left + value - self._first_window for each, left in self._windows.items()}
                    self._first_window = value
            self._writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._writer.write(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW_UPDATE and stream:
            self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(body)
        elif kind == _WINDOW_UPDATE:
            self._window += int.from_bytes(body)
        elif kind == _RST_STREAM or (kind == _HEADERS and flags & _END_STREAM):
            self.ended.add(stream)
        elif kind == _GOAWAY:
            self.closed = True


def grpc_message(payload: bytes) -> bytes:
    """A message as gRPC frames it: not compressed, and its length."""
    return struct.pack(">BI", 0, len(payload)) + payload


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body
