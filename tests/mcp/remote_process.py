"""The process that speaks to a server over HTTP, and a server on loopback that asks in each call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fumehood_sdk.adapters.mcp.remote.settings import VARIABLE

BOUND_S = 60.0


class Handler(BaseHTTPRequestHandler):
    """A server of 2025-11-25 each of whose calls asks its client by its stream, and ends with the answer.

    Of the tool `cut` it closes the stream first. Whoever resumes a stream gets all that others have had as well.
    """

    protocol_version = "HTTP/1.1"
    answered: dict[str, threading.Event]
    called: list[int]
    sent: list[dict[str, Any]]
    sessions: list[str]
    """The last one is that which it knows."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, number = message.get("method"), message.get("id")
        if method != "initialize" and self.headers["Mcp-Session-Id"] != self.sessions[-1]:
            self.reply(404, b"")
        elif method is None:
            self.answered[number].set()
            self.reply(202, b"")
        elif method == "initialize":
            self.sent.clear()
            self.sessions.append(f"session-{len(self.sessions)}")
            self.result(number, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
        elif method == "tools/list":
            self.result(number, {"tools": []})
        elif method == "tools/call":
            self.called.append(number)
            self.begin_stream()
            if message["params"]["name"] == "cut":
                self.wfile.write(b"id: %d\nretry: 0\ndata:\n\n" % number)
            else:
                self.ask(number)
        else:
            self.reply(202, b"")

    def do_GET(self) -> None:
        self.begin_stream()
        for message in list(self.sent):
            self.event(message)
        self.ask(int(self.headers["Last-Event-ID"]))

    def begin_stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def ask(self, number: int) -> None:
        key = f"ask-{number}"
        self.answered[key] = threading.Event()
        progress = {"method": "notifications/progress", "params": {"progressToken": number, "progress": 1}}
        for message in (progress, {"id": key, "method": "elicitation/create", "params": {}}):
            self.sent.append(message)
            self.event(message)
        self.answered[key].wait(BOUND_S)
        result = {"id": number, "result": {"content": []}}
        self.sent.append(result)  # as threads of other calls do at the same time
        self.event(result)

    def event(self, message: dict[str, Any]) -> None:
        self.wfile.write(b"data: %b\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode())
        self.wfile.flush()

    def result(self, number: int, result: dict[str, Any]) -> None:
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Mcp-Session-Id", self.sessions[-1])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients leave."""


class RemoteProcess:
    """The process that speaks to the server, and the adapter's end of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes], called: list[int], sessions: list[str]) -> None:
        self.process = process
        self.called = called
        self._sessions = sessions

    def end_session(self) -> None:
        """Have the server forget the session."""
        self._sessions.append("none that anybody has")

    def send(self, **message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"nothing came in {BOUND_S} s"
        found: dict[str, Any] = json.loads(line)
        return found

    def call(self, number: int, name: str = "ask") -> None:
        self.send(id=number, method="tools/call", params={"name": name, "_meta": {"progressToken": number}})

    def read_question(self) -> dict[str, Any]:
        """The next message that tells of no progress: a request of the server's."""
        while (message := self.read()).get("method") == "notifications/progress":
            pass
        assert message.get("method") == "elicitation/create", message
        return message

    def answer(self, request: dict[str, Any]) -> None:
        self.send(id=request["id"], result={"action": "decline"})


@contextmanager
def remote_process() -> Iterator[RemoteProcess]:
    """The process, in a session with a server of its own, until the block ends."""
    called: list[int] = []
    sessions: list[str] = []
    handler = type("Its", (Handler,), {"answered": {}, "called": called, "sent": [], "sessions": sessions})
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        settings = {"url": f"{where}/mcp", "authorities": "", "headers": {}, "max_message_bytes": 1 << 20}
        environment = {**os.environ, "http_proxy": where, VARIABLE: json.dumps(settings)}
        argv = [sys.executable, "-m", "fumehood_sdk.adapters.mcp.remote.main"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
            bound = threading.Timer(BOUND_S, process.kill)
            bound.start()
            made = RemoteProcess(process, called, sessions)
            made.send(id=1, method="initialize", params={})
            assert made.read()["id"] == 1
            made.send(method="notifications/initialized")
            yield made
            bound.cancel()
            process.kill()
        server.shutdown()
