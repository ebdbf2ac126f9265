"""HTTP/1.1 endpoint for scrapes, on loopback and in threads of its own, bounded in requests, bytes and time."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable

from fumehood_server.telemetry.settings import TelemetryListenError

MAX_SCRAPES = 4
"""At a time. A connection above that is closed at once."""
MAX_HEAD_BYTES = 8192
SCRAPE_S = 5.0
"""For a whole request, from the connection to the answer's last byte."""

_END = b"\r\n\r\n"
_PASSING = frozenset({errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EINTR})
"""What accept(2) may fail with although the next one may not."""
_PAUSE_S = 0.1


class ScrapeServer:
    """Answers `GET /metrics` with what `render` returns, and anything else with an error. `close` ends it."""

    def __init__(self, host: str, port: int, render: Callable[[], bytes]) -> None:
        """Listen, and serve in threads. `render` is called there.

        Raises:
            TelemetryListenError: the address can't be had.
        """
        self._render = render
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._listener = socket.create_server(address[:2], family=family, backlog=MAX_SCRAPES)
        except OSError as error:
            raise TelemetryListenError(f"{host}:{port}", error.strerror or str(error)) from error
        self._free = threading.BoundedSemaphore(MAX_SCRAPES)
        self._thread = threading.Thread(target=self._accept, name="scrapes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more. Scrapes under way end within `SCRAPE_S`, and hold up nobody."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    return  # closed
                time.sleep(_PAUSE_S)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="scrape", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                ends = time.monotonic() + SCRAPE_S
                answer = self._answer(_read_head(connection, ends))
                connection.settimeout(_left_s(ends))
                connection.sendall(answer)
        except OSError:
            return  # too slow, or gone
        finally:
            self._free.release()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if not head:
            return _response("400 Bad Request", b"not a request\n")
        if method not in {b"GET", b"HEAD"}:
            return _response("405 Method Not Allowed", b"GET /metrics\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"GET /metrics\n")
        answer = _response("200 OK", self._render())
        return answer if method == b"GET" else answer.partition(_END)[0] + _END


def _left_s(ends: float) -> float:
    left_s = ends - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _read_head(connection: socket.socket, ends: float) -> bytes:
    """The request's head. Empty: there is none, or it is too long."""
    head = b""
    while _END not in head:
        if len(head) > MAX_HEAD_BYTES:
            return b""
        connection.settimeout(_left_s(ends))
        piece = connection.recv(MAX_HEAD_BYTES)
        if not piece:
            return b""
        head += piece
    return head


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
