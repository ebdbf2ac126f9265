"""An OTLP collector on loopback, for tests: gRPC, over the services of opentelemetry-proto."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

BOUND_S = 60.0


@dataclass
class Collector:
    """What came so far. One that `hangs` never answers."""

    hangs: bool = False
    port: int = 0
    spans: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, str] = field(default_factory=dict)
    came: threading.Condition = field(default_factory=threading.Condition)
    asked: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, resources: Any) -> None:
        self.asked.set()
        if self.hangs:
            self.ended.wait(BOUND_S)
            return
        with self.came:
            for each in resources:
                self.resource = {item.key: item.value.string_value for item in each.resource.attributes}
                for scope in getattr(each, "scope_spans", ()):
                    self.spans += scope.spans
                for scope in getattr(each, "scope_metrics", ()):
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
            self.came.notify_all()

    def spans_of(self, trace_id: str, count: int) -> dict[str, Any]:
        """The spans of one trace by name, once there are so many."""

        def found() -> list[Any]:
            return [span for span in self.spans if span.trace_id.hex() == trace_id]

        with self.came:
            assert self.came.wait_for(lambda: len(found()) >= count, BOUND_S), found()
            return {span.name: span for span in found()}

    def metric(self, name: str) -> Any:
        with self.came:
            assert self.came.wait_for(lambda: name in self.metrics, BOUND_S), sorted(self.metrics)
            return self.metrics[name]


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.collector.take(request.resource_spans)
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self.collector = collector

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.collector.take(request.resource_metrics)
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def collecting(*, hangs: bool = False) -> Iterator[Collector]:
    collector = Collector(hangs=hangs)
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(collector), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(collector), server)
    collector.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector
    finally:
        collector.ended.set()
        server.stop(None).wait()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has, nor is given by the kernel who asks for any: it stays free."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [*range(10_000, first), *range(last + 1, 1 << 16)]
    while True:
        port = secrets.choice(ports)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
