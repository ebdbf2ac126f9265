"""The state of one call: its arguments, deadline and cancellation, and how it reaches the sidecar."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fumehood_sdk.http import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from fumehood_sdk.wire.recorded_values import RecordedValue

MAX_TIMEOUT_S = 3600.0
"""The longest that a call may run."""
MAX_LINE_BYTES = 8192
"""What fumehood/v1/plugin.proto keeps of the message of an update or of a log line."""


class CallSink(Protocol):
    """Takes the updates and log lines of a running call."""

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
        """Send an update. Ignored once the call has ended."""

    def write_log(self, call: Call, level: int, message: str, fields_json: bytes) -> None:
        """Write a line to the log. A call that has ended is no longer named in it."""

    def write_values(self, call: Call, frames: bytes) -> None:
        """Send recorded values, in frames with their lengths before them. Ignored once the call has ended."""


class SidecarCalls(Protocol):
    """Secrets and HTTP requests, which the sidecar provides. Cancelling the call, or the task, ends a request."""

    def fetch_secret(self, call: Call, name: str) -> bytes:
        """Return the value of a secret. Raises `SecretRefused`."""

    async def fetch_secret_async(self, call: Call, name: str) -> bytes:
        """The same, without holding up other tasks."""

    def send_http(self, call: Call, request: HttpRequest) -> HttpResponse:
        """Perform a request. Raises `HttpRefused` or `HttpFailed`."""

    async def send_http_async(self, call: Call, request: HttpRequest) -> HttpResponse:
        """The same, without holding up other tasks."""


class Grants:
    """What the operator grants this process."""

    __slots__ = ("readable_paths", "sidecar", "writable_paths")

    def __init__(self, readable_paths: tuple[str, ...] = (), writable_paths: tuple[str, ...] = ()) -> None:
        self.readable_paths = readable_paths
        self.writable_paths = writable_paths
        self.sidecar: Callable[[], SidecarCalls] = _no_sidecar
        """Returns what performs requests of calls; set by the runtime that runs the calls."""


def _no_sidecar() -> SidecarCalls:
    raise RuntimeError("no sidecar answers requests here")


NO_GRANTS = Grants()


class Call:
    """One call under way."""

    __slots__ = (
        "arguments_json",
        "attempt",
        "call_id",
        "cancel_callbacks",
        "cancel_reason",
        "closed",
        "context",
        "deadline",
        "end_claim",
        "grants",
        "interruption",
        "invocation_id",
        "max_recorded_bytes",
        "recording",
        "replay",
        "sink",
        "task",
        "thread_id",
        "tool",
        "trace",
    )

    def __init__(
        self,
        invocation_id: int,
        tool: Any,  # noqa: ANN401 - a `Tool` in tests, a `RegisteredTool` in a worker
        arguments_json: bytes,
        sink: CallSink,
        *,
        call_id: str = "",
        attempt: int = 1,
        timeout_s: float = 0.0,
        context: bytes = b"",
        grants: Grants = NO_GRANTS,
        max_recorded_bytes: int = 0,
        replay: Sequence[RecordedValue] | None = None,
        trace: tuple[bytes, bytes] = (b"", b""),
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
        self.max_recorded_bytes = max_recorded_bytes
        """Most bytes of values that are recorded. 0: none are."""
        self.replay = replay
        """The values of its record, where it is run again from that."""
        self.trace = trace
        """Its `traceparent` and `tracestate`."""
        self.recording: Any = None
        """The `Recording` of what it took from outside. None: nothing yet."""
        self.cancel_reason: str | None = None
        self.closed = False
        """Whether its result was written: nothing may be said of it afterwards."""
        self.end_claim = [True]
        """Decides the race to end the call: `list.pop` is atomic, so it succeeds either in the thread that runs the
        call or in the one that interrupts it; in an asynchronous call, in its task's first step or in a cancellation
        before that."""
        self.thread_id = 0
        self.interruption: Any = None
        """An event that is set once `Cancelled` was raised in the call's thread. None: it was not interrupted."""
        self.task: Any = None
        self.cancel_callbacks: list[Callable[[], None]] = []

    def cancel(self, reason: str) -> None:
        """Mark the call as cancelled and wake what waits for that. Idempotent."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            for wake in list(self.cancel_callbacks):
                wake()

    def add_cancel_callback(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, from another thread, when the call is cancelled; at once if it is already."""
        self.cancel_callbacks.append(wake)
        # A cancellation between these two lines calls it twice, which is better than never.
        if self.cancel_reason is not None:
            wake()
