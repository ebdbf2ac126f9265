"""Structured logging (structlog, JSON lines), the watchdog of the event loop, metrics and traces."""

from fumehood_server.telemetry.call_observer import CallObserver
from fumehood_server.telemetry.logging import call_lines, configure_logging, get_logger, log_lines_dropped
from fumehood_server.telemetry.loop_watchdog import LoopFigures, LoopWatchdog
from fumehood_server.telemetry.metrics import SidecarMetrics
from fumehood_server.telemetry.run_observer import EngineLabel, InferenceEnd, RunObserver
from fumehood_server.telemetry.running import Telemetry, open_telemetry
from fumehood_server.telemetry.settings import TelemetrySettings
from fumehood_server.telemetry.trace_context import TraceStarter

__all__ = [
    "CallObserver",
    "EngineLabel",
    "InferenceEnd",
    "LoopFigures",
    "LoopWatchdog",
    "RunObserver",
    "SidecarMetrics",
    "Telemetry",
    "TelemetrySettings",
    "TraceStarter",
    "call_lines",
    "configure_logging",
    "get_logger",
    "log_lines_dropped",
    "open_telemetry",
]
