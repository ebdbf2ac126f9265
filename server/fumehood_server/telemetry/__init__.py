"""Structured logging (structlog, JSON lines), and the watchdog of the event loop."""

from fumehood_server.telemetry.logging import call_lines, configure_logging, get_logger
from fumehood_server.telemetry.loop_watchdog import LoopFigures, LoopWatchdog

__all__ = ["LoopFigures", "LoopWatchdog", "call_lines", "configure_logging", "get_logger"]
