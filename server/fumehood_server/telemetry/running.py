"""Telemetry of a sidecar that serves: imported, opened and closed as the operator asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version

from fumehood_server.telemetry.call_observer import CallObserver
from fumehood_server.telemetry.instruments import Family
from fumehood_server.telemetry.logging import get_logger
from fumehood_server.telemetry.metrics import SidecarMetrics
from fumehood_server.telemetry.scrape_server import ScrapeServer
from fumehood_server.telemetry.settings import TelemetryMissingError, TelemetrySettings
from fumehood_server.telemetry.trace_context import TraceStarter

SAMPLE_S = 1.0
"""How long an export waits for the event loop to set the gauges. After it, they are as they were last."""


class Telemetry:
    """What the sidecar's parts are handed: metrics, the observer of calls, and where calls are traced their starter."""

    def __init__(self, settings: TelemetrySettings) -> None:
        """For the running loop."""
        self.metrics = SidecarMetrics()
        self.observer = CallObserver(self.metrics)
        self.traces = TraceStarter(settings.traces_sample_ratio) if settings.otlp_endpoint else None
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Sequence[Family]:
        """All metrics now. For any thread but the loop's."""
        sampled = threading.Event()

        def sample() -> None:
            try:
                self._sample()
            finally:
                sampled.set()

        with contextlib.suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(sample)
            sampled.wait(SAMPLE_S)
        return self.metrics.families()

    def otlp_state(self, problem: str | None) -> None:
        """Log that the collector can't be reached, or can again. For any thread."""
        with contextlib.suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(_log_state, problem)

    def _sample(self) -> None:
        self.metrics.sample()
        observer = self.observer
        self.metrics.calls_untraced.set_total(observer.calls_dropped)
        self.metrics.spans_lost.set_total(observer.spans_lost)


@contextlib.asynccontextmanager
async def open_telemetry(settings: TelemetrySettings) -> AsyncIterator[Telemetry | None]:
    """Telemetry within the block; None where the operator asks for none. Leaving it takes some seconds at most.

    Raises:
        TelemetryMissingError: a library isn't installed.
        TelemetryListenError: the scrape endpoint's address can't be had.
    """
    if not settings.is_on:
        yield None
        return
    telemetry = Telemetry(settings)
    with contextlib.ExitStack() as closing:
        try:
            # In a thread: the libraries take up to 0.6 s to import.
            await asyncio.to_thread(_open, settings, telemetry, closing)
            yield telemetry
        finally:
            await asyncio.shield(asyncio.to_thread(closing.close))


def _open(settings: TelemetrySettings, telemetry: Telemetry, closing: contextlib.ExitStack) -> None:
    release = version("fumehood-server")
    try:
        if settings.prometheus is not None:
            from fumehood_server.telemetry.prometheus import PrometheusText  # noqa: PLC0415 - an extra, and slow

            text = PrometheusText(settings.service_name, release, telemetry.collect)
            closing.callback(ScrapeServer(*settings.prometheus, text.render).close)
        if settings.otlp_endpoint:
            from fumehood_server.telemetry.otlp import OtlpExporter  # noqa: PLC0415 - likewise

            exporter = OtlpExporter(
                settings, release, telemetry.observer, collect=telemetry.collect, on_state=telemetry.otlp_state
            )
            closing.callback(exporter.close)
    except ModuleNotFoundError as error:
        raise TelemetryMissingError(error.name or str(error)) from error


def _log_state(problem: str | None) -> None:
    if problem is None:
        get_logger().info("otlp_available")
    else:
        get_logger().warning("otlp_unavailable", message=problem)
