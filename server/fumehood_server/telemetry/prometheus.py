"""Prometheus text exposition by prometheus_client, with names by OpenTelemetry's rules for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fumehood_server.telemetry.instruments import Distribution, Family, Kind


class PrometheusText:
    """Renders what `collect` returns, with `target_info` for the service's name and version."""

    def __init__(self, service_name: str, version: str, collect: Callable[[], Sequence[Family]]) -> None:
        """`collect` is called for each scrape."""
        self._registry = CollectorRegistry(target_info={"service_name": service_name, "service_version": version})
        self._registry.register(_Families(collect))

    def render(self) -> bytes:
        """The text. For any thread."""
        return generate_latest(self._registry)


class _Families(Collector):
    def __init__(self, collect: Callable[[], Sequence[Family]]) -> None:
        self._collect = collect

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would collect to find names that are used twice."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        return [_metric(family) for family in self._collect()]


def _metric(family: Family) -> Metric:
    definition = family.definition
    name = definition.name.replace(".", "_") + ("_seconds" if definition.unit == "s" else "")
    labels = [each.replace(".", "_") for each in definition.attributes]
    if definition.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, definition.description, labels=labels)
        for key, value in family.points.items():
            if isinstance(value, Distribution):
                histogram.add_metric(list(key), _cumulative(definition.bounds, value), value.sum)
        return histogram
    kind = CounterMetricFamily if definition.kind is Kind.COUNTER else GaugeMetricFamily
    metric = kind(name, definition.description, labels=labels)
    for key, value in family.points.items():
        if not isinstance(value, Distribution):
            metric.add_metric(list(key), value)
    return metric


def _cumulative(bounds: Sequence[float], value: Distribution) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), value.buckets, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
