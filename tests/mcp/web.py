"""Web servers of this machine, for tools that dial."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Page(http.server.BaseHTTPRequestHandler):
    """Every path is a page, but for `/to/PORT`, which leads to another server of this machine."""

    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.path.removeprefix('/to/')}/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server() -> Iterator[int]:
    """Serve until the block ends. Yields the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)
