# ruff: noqa: C901, PLR0912 - one look-up of one short file
"""An MCP server over HTTP of the standard library alone, revision 2025-11-25, whose one tool breaks the protocol."""

from __future__ import annotations

import http.server
import json
import sys
import time
from typing import Any

TOOL = {
    "name": "answer",
    "description": "Answers in one of several ways.",
    "inputSchema": {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]},
}
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "again"}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message["method"], message.get("id")
        if number is None:
            self.reply(202, b"")
        elif method == "initialize":
            version = message["params"]["protocolVersion"]
            self.result(number, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {}})
        elif method == "tools/list":
            self.result(number, {"tools": [TOOL]})
        elif method == "tools/call":
            self.misbehave(number, message["params"]["arguments"]["how"])
        else:
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no method"}}
            self.reply(400, json.dumps(error).encode(), "application/json")

    def misbehave(self, number: Any, how: str) -> None:
        good = {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": how}]}}
        line = json.dumps(good).encode()
        if how == "stream":
            self.stream(b": hello\r\nevent: message\r\nid: 7\r\ndata: %b\r\ndata:\r\n\r\n" % line)
        elif how == "others":
            others = b"event: ping\ndata: 2026-11-26\n\nevent: endpoint\ndata: /messages?session=1\n\n"
            self.stream(b"%bevent: ping\n\ndata: %b\n\n" % (others, line))
        elif how == "marked":
            self.stream(b"\xef\xbb\xbfdata: %b\n\n" % line)
        elif how == "batch":
            self.reply(200, b"[%b, %b]" % (json.dumps(NOTE).encode(), line), "application/json")
        elif how == "html":
            self.reply(200, b"<h1>not MCP</h1>", "text/html")
        elif how == "down":
            self.reply(503, b"later")
        elif how == "wrong_id":
            self.reply(200, json.dumps({**good, "id": 10**6}).encode(), "application/json")
        elif how == "no_json":
            self.reply(200, b"{", "application/json")
        elif how == "digits":
            self.reply(200, line.replace(b'"digits"', b"9" * 1_000_000), "application/json")
        elif how == "forbidden":
            self.reply(403, b'{"error": "insufficient_scope"}', "application/json")
        elif how == "odd_error":
            self.reply(200, b'{"error": "not here"}', "application/json")
        elif how == "deep":
            self.reply(200, b"[" * 100_000 + b"]" * 100_000, "application/json")
        elif how == "cut":
            self.stream(b"data: %b\n" % line)
        elif how == "resumes_none":
            self.stream(b"id: 7\ndata:\n\n")
        elif how == "never_again":
            self.stream(b"id: 7\nretry: 4000000000\ndata:\n\n")
        elif how == "big":
            self.stream(b"data: " + b"x" * 64 * 1024 * 1024 + b"\n\n")
        elif how == "big_in_parts":
            self.stream(b"".join(b"data: " + b"x" * 1024 * 1024 + b"\n" for _ in range(64)) + b"\n")
        elif how == "comments":
            self.endless(b": still here\n\n")
        elif how == "notes":
            self.endless(b"data: %b\n\n" % json.dumps(NOTE).encode())
        elif how == "reset":
            self.close_connection = True
            self.connection.close()
        else:
            self.reply(200, line, "application/json")

    def endless(self, data: bytes) -> None:
        self.begin_stream()
        while True:
            self.wfile.write(data)
            self.wfile.flush()
            time.sleep(0.0005)

    def stream(self, data: bytes) -> None:
        self.begin_stream()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()

    def result(self, number: Any, result: dict[str, Any]) -> None:
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode(), "application/json")

    def reply(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients leave."""


def main() -> None:
    with Server(("127.0.0.1", 0), Handler) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        server.serve_forever()


main()
