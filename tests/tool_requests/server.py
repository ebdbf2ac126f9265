"""A small HTTP server on loopback, for tests: what it was asked, and answers by path."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOLD_S = 30.0
"""The longest that a request is held: far above what any test takes."""


@dataclass
class Web:
    """The server."""

    scheme: str = "http"
    port: int = 0
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    held: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released once for each request for /hold that has come."""
    let_go: threading.Event = field(default_factory=threading.Event)
    sent: int = 0
    """Bytes of /flood that were taken by whoever asked."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when whoever asked for /flood or /hold has left."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}"


class Handler(BaseHTTPRequestHandler):
    """Answers by the path, and notes what came."""

    protocol_version = "HTTP/1.1"
    web: Web

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def answer(self) -> None:
        web = self.web
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        web.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        path = self.path.partition("?")[0]
        if path == "/hold":
            web.held.release()
            web.let_go.wait(HOLD_S)
        try:
            if path == "/flood":
                self.flood()
            else:
                status, content, headers = ANSWERS.get(path, OTHER)
                self.say(status, content, {name: value.format(url=web.url) for name, value in headers.items()})
        except OSError:
            web.gone.set()
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names of the base class's

    def say(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def flood(self) -> None:
        self.send_response(200)
        self.send_header("content-length", str(1 << 30))
        self.end_headers()
        while True:
            self.web.sent += self.connection.send(b"f" * 65536)


OTHER = (200, '{"hello": "wörld"}'.encode(), {"content-type": "application/json; charset=utf-8"})
ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "/redirect": (302, b"", {"location": "{url}/hello"}),
    "/elsewhere": (302, b"", {"location": "http://127.0.0.2:1/"}),
    "/missing": (404, b"no such thing", {}),
    "/large": (200, b"x" * 100_000, {}),
}


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    """Serve until the block ends."""
    web = Web(scheme="http" if tls is None else "https")
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"web": web})) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        web.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield web
        finally:
            web.let_go.set()
            server.shutdown()
            thread.join()
