"""A registry of npm's on this machine, with packages that a test writes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class NpmRegistry:
    """What is published, by name and version, and what was asked for."""

    port: int = 0
    versions: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    archives: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """For npm, and whoever runs it."""
        return {"npm_config_registry": f"http://127.0.0.1:{self.port}/"}

    def publish(self, name: str, version: str, files: Mapping[str, str], **more: Any) -> None:
        """Publish a version, which is the newest from then on."""
        package = {"name": name, "version": version, **more}
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for path, text in {"package.json": json.dumps(package), **files}.items():
                info = tarfile.TarInfo(f"package/{path}")
                info.size, info.mode = len(text.encode()), 0o755
                tar.addfile(info, io.BytesIO(text.encode()))
        path = f"/{name}/-/{version}.tgz"
        self.archives[path] = archive.getvalue()
        digest = base64.b64encode(hashlib.sha512(archive.getvalue()).digest()).decode()
        dist = {"tarball": f"http://127.0.0.1:{self.port}{path}", "integrity": f"sha512-{digest}"}
        self.versions.setdefault(name, {})[version] = {**package, "dist": dist}

    def answer(self, path: str) -> bytes | None:
        """The archive or the description at a path."""
        self.asked.append(path)
        if path in self.archives:
            return self.archives[path]
        name = path.removeprefix("/")
        versions = self.versions.get(name)
        if versions is None:
            return None
        return json.dumps({"name": name, "dist-tags": {"latest": list(versions)[-1]}, "versions": versions}).encode()


@contextlib.contextmanager
def npm_registry() -> Iterator[NpmRegistry]:
    """Serve one."""
    registry = NpmRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = registry.answer(unquote(self.path))
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"{}")))
            self.end_headers()
            self.wfile.write(body or b"{}")

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
