"""One call as the plugin's side knows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fumehood_sdk.http import HttpRequest, HttpResponse


class Sink(Protocol):
    """Where the words of a running call go."""

    def update(self, call: Call, message: str, progress: float | None, total: float | None, data_json: bytes) -> None:
        """Say how the call is getting on. Ignored once the call has ended."""

    def log(self, call: Call, level: int, message: str, fields_json: bytes) -> None:
        """Write a line to the log. A call that has ended is no longer named in it."""


class Host(Protocol):
    """What does for calls what their process can't. Cancelling the call, or the task, ends a request."""

    def secret(self, call: Call, name: str) -> bytes:
        """The value of a secret. Raises `SecretRefused`."""

    async def secret_async(self, call: Call, name: str) -> bytes:
        """The same, without holding up other tasks."""

    def http(self, call: Call, request: HttpRequest) -> HttpResponse:
        """Perform a request. Raises `HttpRefused` or `HttpFailed`."""

    async def http_async(self, call: Call, request: HttpRequest) -> HttpResponse:
        """The same, without holding up other tasks."""


class Grants:
    """What the operator grants this process."""

    __slots__ = ("host", "readable_paths", "writable_paths")

    def __init__(self, readable_paths: tuple[str, ...] = (), writable_paths: tuple[str, ...] = ()) -> None:
        self.readable_paths = readable_paths
        self.writable_paths = writable_paths
        self.host: Callable[[], Host] = _no_host
        """Gives what answers requests; set by whoever runs the calls."""


def _no_host() -> Host:
    raise RuntimeError("nobody answers requests here")


NO_GRANTS = Grants()


class Call:
    """One call under way. Made on the path of each call, hence no more than slots."""

    __slots__ = (
        "arguments_json",
        "attempt",
        "call_id",
        "cancel_reason",
        "closed",
        "context",
        "deadline",
        "grants",
        "interruption",
        "invocation_id",
        "sink",
        "task",
        "thread_id",
        "tool",
        "unended",
        "wakers",
    )

    def __init__(
        self,
        invocation_id: int,
        tool: Any,  # noqa: ANN401 - what each runtime keeps of a tool is its own affair
        arguments_json: bytes,
        sink: Sink,
        *,
        call_id: str = "",
        attempt: int = 1,
        timeout_s: float = 0.0,
        context: bytes = b"",
        grants: Grants = NO_GRANTS,
    ) -> None:
        self.invocation_id = invocation_id
        self.tool = tool
        self.arguments_json = arguments_json
        self.sink = sink
        self.call_id = call_id
        self.attempt = attempt
        self.deadline = time.monotonic() + timeout_s
        self.context = context
        self.grants = grants
        self.cancel_reason: str | None = None
        self.closed = False
        """Whether its result was written: nothing may be said of it afterwards."""
        self.unended = [True]
        """Emptied once, by whoever comes first: the thread that ends the call, or the one that interrupts it. Of an
        asynchronous call: by its task's first step, or by what cancels it sooner."""
        self.thread_id = 0
        self.interruption: Any = None
        self.task: Any = None
        self.wakers: list[Callable[[], None]] = []

    def cancel(self, reason: str) -> None:
        """Mark the call as cancelled and wake what waits for that. Idempotent."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            for wake in list(self.wakers):
                wake()

    def on_cancel(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from another thread, when the call is cancelled; at once if it is already."""
        self.wakers.append(wake)
        # A cancellation that came between the two was woken twice rather than never.
        if self.cancel_reason is not None:
            wake()
