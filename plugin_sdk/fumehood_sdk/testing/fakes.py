"""Fakes of what a call reaches in the sidecar: its secrets and HTTP, and whoever takes its updates and log lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pydantic_core import from_json

from fumehood_sdk.call import Call
from fumehood_sdk.errors import HttpRefused, SecretRefused
from fumehood_sdk.http import HttpRequest, HttpResponse
from fumehood_sdk.testing.results import CallLog, CallUpdate

_METHODS: dict[str | None, tuple[str, ...]] = {"none": (), "read": ("GET", "HEAD"), "write": ("GET", "HEAD")}
_LEVELS = {1: "debug", 2: "info", 3: "warning", 4: "error"}


class FakeSidecar:
    """A fake of the sidecar's secrets and HTTP, by its rules on levels and on what a tool requires."""

    def __init__(self, secrets: Mapping[str, str | bytes], http: Callable[[HttpRequest], HttpResponse] | None) -> None:
        self._secrets = secrets
        self._http = http

    def fetch_secret(self, call: Call, name: str) -> bytes:
        """The test's value, as `ctx.secret` asks for it."""
        if f"secret:{name}" not in call.tool.declaration.requires:
            problem = f'the secret "{name}" is not granted to this tool: it takes requires=["secret:{name}"]'
            raise SecretRefused(problem, reason="secret_refused")
        if name not in self._secrets:
            raise SecretRefused(f'the test has no secret "{name}": secrets={{...}}', reason="secret_refused")
        value = self._secrets[name]
        return value.encode() if isinstance(value, str) else value

    async def fetch_secret_async(self, call: Call, name: str) -> bytes:
        """The same."""
        return self.fetch_secret(call, name)

    def send_http(self, call: Call, request: HttpRequest) -> HttpResponse:
        """The answer of the test's function, as the level allows it."""
        level = call.tool.declaration.side_effects
        if request.method not in _METHODS.get(level, (request.method,)):
            problem = f"the method {request.method} is not allowed at the level {level}"
            raise HttpRefused(problem, reason="method_not_allowed")
        if self._http is None:
            raise HttpRefused("the test grants no host: http=function", reason="host_not_granted")
        response = self._http(request)
        if request.max_bytes is not None and len(response.content) > request.max_bytes:
            raise HttpRefused(f"the body is longer than {request.max_bytes} bytes", reason="response_too_large")
        return response

    async def send_http_async(self, call: Call, request: HttpRequest) -> HttpResponse:
        """The same."""
        return self.send_http(call, request)


class CollectingSink:
    """A `CallSink` that keeps updates and log lines in lists."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.updates: list[CallUpdate] = []
        self.logs: list[CallLog] = []

    def write_update(
        self,
        call: Call,
        message: str,
        progress: float | None,
        total: float | None,
        data_json: bytes,
        *,
        unit: str = "",
    ) -> None:
        """Keep an update."""
        data = from_json(data_json) if data_json else None
        with self.lock:
            if not call.closed:
                self.updates.append(CallUpdate(message=message, progress=progress, total=total, data=data, unit=unit))
                self.changed.notify_all()

    def write_log(self, call: Call, level: int, message: str, fields_json: bytes) -> None:
        """Keep a log line."""
        fields = from_json(fields_json) if fields_json else {}
        with self.lock:
            if not call.closed:
                self.logs.append(CallLog(level=_LEVELS[level], message=message, fields=fields))

    def write_values(self, call: Call, frames: bytes) -> None:
        """Nobody keeps them."""
