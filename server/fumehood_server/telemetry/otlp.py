"""OTLP over gRPC: a daemon thread that sends spans and metrics to a collector, and holds up nobody else.

What is sent is taken from a bounded queue; what there is no room for is dropped and counted. A collector that hangs
costs this thread `EXPORT_TIMEOUT_S` for each batch, and the sidecar's end `FLUSH_S`. The SDK's BatchSpanProcessor would
take finished spans, which cost the event loop three times as much, and wait 30 s for such a collector at the end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    DataPointT,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from fumehood_server.telemetry.call_observer import CallObserver
from fumehood_server.telemetry.instruments import Distribution, Family, Kind
from fumehood_server.telemetry.settings import TelemetrySettings
from fumehood_server.telemetry.spans import spans_of

EXPORT_TIMEOUT_S = 5
"""For one batch, with the SDK's tries. It takes whole seconds."""
FLUSH_S = 2.0
"""Longest that the sidecar's end waits until what is left is sent."""
INTERVAL_S = 1.0
"""Between two looks at the queue of spans."""
BATCH_CALLS = 256
"""Their spans go in one message of some 200 KiB."""

PAUSE_S = 5.0
"""Likewise, while the collector takes nothing."""

_LIBRARY_LOGGER = "opentelemetry.exporter.otlp.proto.grpc.exporter"
_MAX_PROBLEM_CHARS = 512
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpExporter:
    """The thread. `close` ends it, within `FLUSH_S`."""

    def __init__(
        self,
        settings: TelemetrySettings,
        version: str,
        observer: CallObserver,
        *,
        collect: Callable[[], Sequence[Family]],
        on_state: Callable[[str | None], None],
    ) -> None:
        """Start it. There `collect` is called, and `on_state` with why the collector takes nothing; None: it does."""
        # OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_* are read by these.
        self._resource = Resource.create({"service.name": settings.service_name, "service.version": version})
        self._scope = InstrumentationScope("fumehood", version)
        self._span_exporter = OTLPSpanExporter(endpoint=settings.otlp_endpoint, timeout=EXPORT_TIMEOUT_S)
        self._metric_exporter = OTLPMetricExporter(endpoint=settings.otlp_endpoint, timeout=EXPORT_TIMEOUT_S)
        self._problems = _LastProblem()
        logging.getLogger(_LIBRARY_LOGGER).addFilter(self._problems)
        self._works = True
        self._on_state = on_state
        self._observer = observer
        self._collect = collect
        self._interval_s = settings.metrics_interval_s
        self._began_ns = time.time_ns()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is left, and end. Blocks: for a thread."""
        self._closing.set()
        self._thread.join(FLUSH_S)
        # Closing their channels ends what is under way.
        self._span_exporter.shutdown()
        self._metric_exporter.shutdown()
        self._thread.join(FLUSH_S)

    def _run(self) -> None:
        due = time.monotonic() + self._interval_s
        while not self._closing.wait(INTERVAL_S if self._works else PAUSE_S):
            self._try_export(self._export_spans)
            if time.monotonic() >= due:
                due = time.monotonic() + self._interval_s
                self._try_export(self._export_metrics)
        self._try_export(self._export_spans)
        self._try_export(self._export_metrics)

    def _try_export(self, export: Callable[[], None]) -> None:
        try:
            export()
        except Exception as problem:  # noqa: BLE001 - what can't be encoded must not end the thread
            self._problems.text = f"{type(problem).__name__}: {problem}"[:_MAX_PROBLEM_CHARS]
            self._took(works=False)

    def _export_spans(self) -> None:
        waiting = self._observer.spans
        while waiting:
            calls = [waiting.popleft() for _ in range(min(len(waiting), BATCH_CALLS))]
            spans = [span for call in calls for span in spans_of(call, self._resource, self._scope)]
            if not self._took(works=self._span_exporter.export(spans) is SpanExportResult.SUCCESS):
                self._observer.spans_lost += len(spans)
                return  # after the next interval, unless this is the end

    def _export_metrics(self) -> None:
        now_ns = time.time_ns()
        metrics = [_metric(family, self._began_ns, now_ns) for family in self._collect() if family.points]
        scope = ScopeMetrics(self._scope, metrics, schema_url="")
        data = MetricsData([ResourceMetrics(self._resource, [scope], schema_url="")])
        self._took(works=self._metric_exporter.export(data) is MetricExportResult.SUCCESS)

    def _took(self, *, works: bool) -> bool:
        if works is not self._works and not self._closing.is_set():
            self._on_state(None if works else self._problems.text or "the collector took nothing")
        self._works = works
        return works


class _LastProblem(logging.Filter):
    """Keeps the exporters' lines from the log, where they would come with each batch, and the last one's text."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        self.text = record.getMessage()[:_MAX_PROBLEM_CHARS]
        return False


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric:
    definition = family.definition
    points: list[DataPointT] = []
    for key, value in family.points.items():
        attributes = {name: each for name, each in zip(definition.attributes, key, strict=True) if each}
        if isinstance(value, Distribution):
            points.append(
                HistogramDataPoint(
                    attributes=attributes,
                    start_time_unix_nano=began_ns,
                    time_unix_nano=now_ns,
                    count=value.count,
                    sum=value.sum,
                    bucket_counts=value.buckets,
                    explicit_bounds=definition.bounds,
                    min=None,  # type: ignore[arg-type] # not kept; the encoder leaves it out
                    max=None,  # type: ignore[arg-type] # likewise
                )
            )
        else:
            points.append(NumberDataPoint(attributes, began_ns, now_ns, value))
    data: Gauge | Histogram | Sum
    if definition.kind is Kind.HISTOGRAM:
        data = Histogram([each for each in points if isinstance(each, HistogramDataPoint)], _CUMULATIVE)
    else:
        numbers = [each for each in points if isinstance(each, NumberDataPoint)]
        data = Gauge(numbers) if definition.kind is Kind.GAUGE else Sum(numbers, _CUMULATIVE, is_monotonic=True)
    return Metric(definition.name, definition.description, definition.unit, data)
