"""A receiver of webhooks, and messages that are signed as such: by the form's text, and not by the sidecar's code."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import queue
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.sidecar import Sidecar

BOUND_S = 60.0
KEY = bytes(range(32))
SECRET = b"whsec_" + base64.b64encode(KEY)
REPLY_SECRET = b"thirty-two bytes of the other key"


def signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


@dataclass(frozen=True)
class Message:
    """What the receiver was sent."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def approval(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.body)["data"]
        return data

    def check(self) -> None:
        timestamp = self.headers["webhook-timestamp"]
        assert self.headers["webhook-signature"] == signature(KEY, self.id, timestamp, self.body)
        assert abs(time.time() - int(timestamp)) < BOUND_S


class Receiver:
    """Real HTTP, on a port of its own. `answers` are the next statuses; then it answers 204."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Message] = queue.Queue()
        self.answers: deque[int] = deque()
        self.go_on = threading.Event()
        """Cleared: it takes messages, and answers none."""
        self.go_on.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver.answers.popleft() if receiver.answers else 204
                receiver.messages.put(Message(self.path, headers, body))
                receiver.go_on.wait(BOUND_S)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    if status // 100 == 3:
                        self.send_header("location", "/elsewhere")
                    self.send_header("content-length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @contextlib.contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.go_on.set()
            self.server.shutdown()
            thread.join()
            self.server.server_close()

    def next(self) -> Message:
        return self.messages.get(timeout=BOUND_S)

    def of(self, call_id: str) -> Message:
        """The next one about a call. Those about others are passed over."""
        while (found := self.next()).approval["call_id"] != call_id:
            pass
        return found


def write_secrets(folder: Path) -> None:
    for name, value in (("out", SECRET), ("back", REPLY_SECRET)):
        path = folder / name
        path.write_bytes(value + b"\n")
        path.chmod(0o600)


def webhook_table(receiver: Receiver, *, listen: str = "127.0.0.1:0", approve: str = "note") -> str:
    """A folder's `write_secrets` goes with it."""
    return f"""
[secrets.out]
file = "out"
[secrets.back]
file = "back"
[approvals.webhook]
url = "http://127.0.0.1:{receiver.port}/hook"
secret = "out"
allow_private = ["127.0.0.1"]
listen = "{listen}"
reply_secret = "back"
caller = "desk"
[[caller]]
name = "desk"
approve = ["{approve}"]
"""


class Replier:
    """Posts to the sidecar's own address."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.address = str(sidecar.logged(event="webhook_listening")["address"])

    def connection(self) -> http.client.HTTPConnection:
        if not self.address.startswith("unix:"):
            return http.client.HTTPConnection(self.address, timeout=BOUND_S)
        connection = http.client.HTTPConnection("localhost", timeout=BOUND_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.address.removeprefix("unix:"))
        return connection

    def post(
        self,
        decision: Mapping[str, Any] | bytes,
        message_id: str = "",
        *,
        key: bytes = REPLY_SECRET,
        age_s: int = 0,
        method: str = "POST",
        path: str = "/approvals/decide",
        **changed: str,
    ) -> tuple[int, dict[str, Any]]:
        """The status and the answer. `changed` are headers."""
        body = decision if isinstance(decision, bytes) else json.dumps(decision).encode()
        message_id = message_id or f"reply-{time.monotonic_ns()}"
        timestamp = str(int(time.time()) - age_s)
        headers = {
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": signature(key, message_id, timestamp, body),
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        connection = self.connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


def reason_of(answered: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    return answered[0], answered[1]["error"]["reason"]


def decision_of(approval: Mapping[str, Any], choice: str = "approve", **more: str) -> dict[str, Any]:
    return {"approval_id": approval["approval_id"], "digest": approval["digest"], "choice": choice, **more}
