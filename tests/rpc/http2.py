"""A bare HTTP/2 client (RFC 9113) that speaks gRPC as badly as it is told: half a request, no window, no reading."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4

_INITIAL_WINDOW_SIZE = 4
_MAX_FRAME_BYTES = 16384
_BOUND_S = 60.0
_FIRST_WINDOW = 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(data: bytes) -> bytes:
    """A gRPC message: no compression, length, bytes."""
    return struct.pack(">BI", 0, len(data)) + data


class Http2:
    """One connection. Requests are on odd streams, from 1 on."""

    def __init__(self, target: str, *, window: int = 65535) -> None:
        """`window` is what the server may send on each stream before it is told of more."""
        if target.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(target.removeprefix("unix:"))
        else:
            host, _, port = target.rpartition(":")
            self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(_BOUND_S)
        self._next_stream = 1
        self._received = b""
        try:
            self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, window)))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self.socket.close()

    def shut_down(self) -> None:
        """End the connection, also for a thread that reads from it."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, method: str, body: bytes = b"", *, end: bool = True) -> int:
        """Begin a request, with what of its message is in `body`. Returns the stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        fields = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost")]
        fields += [("content-type", "application/grpc"), ("te", "trailers")]
        block = b"".join(_literal(name, value) for name, value in fields)
        flags = END_HEADERS | (END_STREAM if end and not body else 0)
        self.socket.sendall(frame(HEADERS, flags, stream, block) + self._data(stream, body, end=end))
        return stream

    def finish(self, stream: int) -> bytes:
        """The frame that ends a request whose message lacks one byte."""
        return self._data(stream, b"\0", end=True)

    def receive(self) -> tuple[int, int, int, bytes]:
        """The next frame: kind, flags, stream, payload. Pings and settings are acknowledged."""
        head = self._read(9)
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        payload = self._read(length)
        if kind in {PING, SETTINGS} and not flags & ACK:
            self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        return kind, flags, int.from_bytes(head[5:9]) & 0x7FFFFFFF, payload

    def send_within_windows(self, body: bytes, streams: list[int]) -> set[int]:
        """Send as much of `body` on each stream as the server takes. Returns the streams that it ended before."""
        left = dict.fromkeys(streams, body)
        windows, connection, ended = dict.fromkeys(streams, _FIRST_WINDOW), _FIRST_WINDOW, set[int]()
        while left:
            for stream in list(left):
                count = min(windows[stream], connection, len(left[stream]))
                self.socket.sendall(self._data(stream, left[stream][:count], end=False))
                left[stream] = left[stream][count:]
                windows[stream], connection = windows[stream] - count, connection - count
                if not left[stream]:
                    del left[stream]
            if left:
                kind, flags, stream, payload = self.receive()
                if kind == WINDOW_UPDATE and stream:
                    windows[stream] += int.from_bytes(payload)
                elif kind == WINDOW_UPDATE:
                    connection += int.from_bytes(payload)
                elif kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
                    ended.add(stream)
                    left.pop(stream, None)
        return ended

    def closed(self) -> bool:
        """Read until the server closes the connection."""
        try:
            while True:
                self.receive()
        except (EOFError, ConnectionError):
            return True
        except TimeoutError:
            return False

    def _data(self, stream: int, body: bytes, *, end: bool) -> bytes:
        parts = [body[start : start + _MAX_FRAME_BYTES] for start in range(0, len(body), _MAX_FRAME_BYTES)]
        return b"".join(
            frame(DATA, END_STREAM if end and number == len(parts) else 0, stream, part)
            for number, part in enumerate(parts, 1)
        )

    def _read(self, count: int) -> bytes:
        while len(self._received) < count:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._received += data
        data, self._received = self._received[:count], self._received[count:]
        return data


def _literal(name: str, value: str) -> bytes:
    """A field without indexing and without Huffman (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
