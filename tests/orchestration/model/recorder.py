"""A reverse proxy before a model's server that keeps what it answered, as it was on the wire."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 600.0
READ_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that was answered to its end."""

    status: int
    answer: str

    def to_json(self) -> dict[str, Any]:
        """Events apart, so that a cassette can be read."""
        return {"status": self.status, "chunks": re.findall(r".+?(?:\n\n|\Z)", self.answer, re.DOTALL)}


@dataclass(slots=True)
class Recorder:
    """Exchanges so far. One that its client left is none."""

    base_url: str
    exchanges: list[Exchange] = field(default_factory=list)


@contextmanager
def recording(upstream: str) -> Iterator[Recorder]:
    """A recorder in front of the server at the URL `upstream`, until the end of the context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    recorder = Recorder(f"http://127.0.0.1:{server.server_address[1]}/v1")
    server.recorder, server.upstream = recorder, urlsplit(upstream).netloc  # type: ignore[attr-defined]  # for handlers
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        connection = http.client.HTTPConnection(self.server.upstream, timeout=TIMEOUT_S)  # type: ignore[attr-defined]
        try:
            connection.request("POST", self.path, body, {"content-type": "application/json"})
            self._answer(connection.getresponse())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client left: closing upstream's connection ends its work too
        finally:
            connection.close()

    def _answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        self.send_header("content-type", response.headers["content-type"])
        self.send_header("connection", "close")
        self.end_headers()
        parts = []
        while part := response.read1(READ_BYTES):
            self.wfile.write(part)
            parts.append(part)
        exchange = Exchange(response.status, b"".join(parts).decode())
        self.server.recorder.exchanges.append(exchange)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        """Say nothing."""
