"""What is sampled for metrics: the state of the sidecar's parts, read on the event loop before each export."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fumehood_server.calls import Executor
from fumehood_server.model.journal import Journal
from fumehood_server.telemetry import LoopWatchdog, SidecarMetrics, log_lines_dropped
from fumehood_server.workers import LogSink, Pools


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Sets the gauges of `metrics`, and the counters that the parts keep themselves."""

    metrics: SidecarMetrics
    executor: Executor
    pools: Pools
    journal: Journal
    logs: LogSink
    watchdog: LoopWatchdog

    def sample(self) -> None:
        """Read all of them. Some microseconds for each worker."""
        metrics, figures = self.metrics, self.watchdog.figures
        metrics.in_flight.set(self.executor.calls_in_flight)
        metrics.workers.set_all(Counter((each.spec.plugin, each.state.value) for each in self.pools.workers()))
        for (plugin, kind), count in self.pools.starts.items():
            metrics.starts.set_total(count, plugin, kind)
        metrics.loop_longest.set(figures.longest_s)
        metrics.loop_held_up.set_total(figures.over_20_ms, "20ms")
        metrics.loop_held_up.set_total(figures.over_100_ms, "100ms")
        if self.journal.recording:
            metrics.journal_queue.set(self.journal.waiting)
            metrics.journal_writable.set(1 if self.journal.problem is None else 0)
            metrics.journal_lost.set_total(self.journal.lost)
        metrics.log_dropped.set_total(log_lines_dropped())
        for plugin, dropped in self.logs.dropped().items():
            metrics.plugin_log_dropped.set_total(dropped, plugin)
