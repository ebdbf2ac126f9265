"""The hook of runs: counts inferences and runs that have ended, and queues their spans."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from fumehood_server.model.trace import TraceContext
from fumehood_server.telemetry.call_observer import CallObserver
from fumehood_server.telemetry.ended import EndedInference, EndedRun
from fumehood_server.telemetry.metrics import SidecarMetrics


@dataclass(frozen=True, slots=True)
class EngineLabel:
    """How conventions name what an engine asks."""

    provider: str
    """`gen_ai.provider.name`."""
    model: str
    """`gen_ai.request.model`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceEnd:
    """How one try of an inference ended."""

    engine: str
    """Name."""
    code: str
    """`OK`, or an error's."""
    took_s: float
    response_model: str = ""
    finish_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class RunObserver:
    """Told of each inference and each run at its end. Some microseconds; never waits."""

    __slots__ = ("_labels", "_metrics", "_queue")

    def __init__(self, metrics: SidecarMetrics, queue: CallObserver, labels: Mapping[str, EngineLabel]) -> None:
        """Count in `metrics`; spans go the way of those of calls. `labels` are by engine."""
        self._metrics = metrics
        self._queue = queue
        self._labels = labels

    def inference_ended(self, end: InferenceEnd, *, trace: TraceContext | None, session_id: str) -> None:
        """`trace` is the run's. None: it is not traced."""
        label = self._labels.get(end.engine, EngineLabel("", ""))
        self._metrics.inference_ended(label.provider, label.model, end)
        if trace is None or not trace.is_sampled:
            return
        ended_ns = time.time_ns()
        self._queue.enqueue(
            EndedInference(
                trace=trace,
                session_id=session_id,
                provider=label.provider,
                request_model=label.model,
                response_model=end.response_model,
                finish_reason=end.finish_reason,
                input_tokens=end.input_tokens,
                output_tokens=end.output_tokens,
                code=end.code,
                began_ns=ended_ns - round(end.took_s * 1e9),
                ended_ns=ended_ns,
            )
        )

    def run_ended(
        self, request_id: str, *, mode: str, code: str, took_s: float, trace: TraceContext | None, session_id: str
    ) -> None:
        """`code` is `OK`, or its error's."""
        self._metrics.runs.add(mode, code)
        if trace is None or not trace.is_sampled:
            return
        ended_ns = time.time_ns()
        self._queue.enqueue(
            EndedRun(
                trace=trace,
                request_id=request_id,
                session_id=session_id,
                mode=mode,
                code=code,
                began_ns=ended_ns - round(took_s * 1e9),
                ended_ns=ended_ns,
            )
        )


__all__ = ["EngineLabel", "InferenceEnd", "RunObserver"]
