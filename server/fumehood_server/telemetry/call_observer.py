"""The one hook of the call path: counts a call that has ended, and queues its spans."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.model.trace import TraceContext
from fumehood_server.telemetry.metrics import SidecarMetrics

MAX_WAITING_SPANS = 4096
"""Calls whose spans wait for the collector: some 2 MiB. More are dropped and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """What the spans of one call are made of, in the exporter's thread. Times are Unix nanoseconds."""

    trace: TraceContext
    call_id: str
    tool: str
    plugin: str
    worker_id: str
    code: str
    attempt: int
    began_ns: int
    dispatched_ns: int
    """0: it was sent to no worker."""
    ended_ns: int


class CallObserver:
    """Told of each call at its end. Some microseconds; never waits."""

    __slots__ = ("_metrics", "calls_dropped", "spans", "spans_lost")

    def __init__(self, metrics: SidecarMetrics) -> None:
        """Count in `metrics`."""
        self._metrics = metrics
        self.spans: deque[EndedCall] = deque()
        self.calls_dropped = 0
        """Calls whose spans found no room."""
        self.spans_lost = 0
        """Spans that the collector did not take. Written by the exporter's thread."""

    def call_ended(
        self, request: CallRequest, outcome: CallOutcome, *, plugin: str | None, admitted_at: float, worker_id: str
    ) -> None:
        """`plugin` None: the tool is not registered. `admitted_at` is monotonic."""
        error, usage = outcome.error, outcome.usage
        code = "OK" if error is None else error.code.value
        wait_s, run_s = (None, None) if usage is None else (usage.queue_s, usage.wall_s)
        self._metrics.call_ended("" if plugin is None else request.tool, code, wait_s, run_s)
        trace = request.trace
        if trace is None or not trace.is_sampled:
            return
        if len(self.spans) >= MAX_WAITING_SPANS:
            self.calls_dropped += 1
            return
        ended_ns = time.time_ns()
        began_ns = ended_ns - round((time.monotonic() - admitted_at) * 1e9)
        self.spans.append(
            EndedCall(
                trace=trace,
                call_id=outcome.call_id,
                tool=outcome.tool[:64],
                plugin=plugin or "",
                worker_id=worker_id,
                code=code,
                attempt=outcome.attempts,
                began_ns=began_ns,
                dispatched_ns=0 if wait_s is None else began_ns + round(wait_s * 1e9),
                ended_ns=ended_ns,
            )
        )
