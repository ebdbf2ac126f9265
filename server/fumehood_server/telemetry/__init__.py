"""Structured logging (structlog, JSON lines)."""

from fumehood_server.telemetry.logging import call_lines, configure_logging, get_logger

__all__ = ["call_lines", "configure_logging", "get_logger"]
