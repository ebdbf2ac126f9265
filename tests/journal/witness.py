"""A witness as C2SP's tlog-witness has it: an HTTP server that cosigns what only grows."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fumehood_evidence.checkpoint import Checkpoint
from fumehood_evidence.errors import EvidenceError
from fumehood_evidence.merkle import verify_consistency
from fumehood_evidence.note import COSIGNATURE, Signer, Verifier, opened

TIME = 1_800_000_000


@dataclass
class Witness:
    """What it has seen. `answers` are sent in place of its own, in order: a status and a body."""

    signer: Signer
    url: str = ""
    log: Verifier | None = None
    size: int = 0
    root: bytes = b""
    sizes: list[int] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)

    def add(self, body: str) -> tuple[int, str]:
        """`add-checkpoint`: the answer's status and body."""
        if self.answers:
            return self.answers.pop(0)
        head, _, note = body.partition("\n\n")
        old_line, *proof = head.split("\n")
        old = int(old_line.removeprefix("old "))
        if self.log is None:
            return 404, "this log is unknown here"
        try:
            checkpoint = Checkpoint.parse(opened(note, [self.log]).text)
        except EvidenceError as exc:
            return 403, str(exc)
        if old != self.size:
            return 409, f"{self.size}\n"
        try:
            if old:
                hashes = [base64.b64decode(each) for each in proof]
                verify_consistency(old, self.root, checkpoint.size, checkpoint.root, hashes)
        except EvidenceError as exc:
            return 422, str(exc)
        self.size, self.root = checkpoint.size, checkpoint.root
        self.sizes.append(checkpoint.size)
        return 200, self.signer.sign(str(checkpoint), time=TIME)


@contextlib.contextmanager
def witness() -> Iterator[Witness]:
    """One that serves on loopback."""
    one = Witness(
        Signer("test/witness", Signer.generate("x")._key, algorithm=COSIGNATURE),
    )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            status, text = one.add(body) if self.path == "/add-checkpoint" else (404, "no such path")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
