"""The one hook of the call path: counts a call that has ended, and queues its spans."""

from __future__ import annotations

import time
from collections import deque

from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.telemetry.ended import Ended, EndedCall
from fumehood_server.telemetry.metrics import SidecarMetrics

MAX_WAITING_SPANS = 4096
"""Calls, inferences and runs whose spans wait for the collector: some 2 MiB. More are dropped and counted."""


class CallObserver:
    """Told of each call at its end. Some microseconds; never waits."""

    __slots__ = ("_metrics", "calls_dropped", "spans", "spans_lost")

    def __init__(self, metrics: SidecarMetrics) -> None:
        """Count in `metrics`."""
        self._metrics = metrics
        self.spans: deque[Ended] = deque()
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
        ended_ns = time.time_ns()
        began_ns = ended_ns - round((time.monotonic() - admitted_at) * 1e9)
        self.enqueue(
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

    def enqueue(self, ended: Ended) -> None:
        """Have spans sent, or count that there is no room for them."""
        if len(self.spans) >= MAX_WAITING_SPANS:
            self.calls_dropped += 1
        else:
            self.spans.append(ended)
