"""What the sidecar says of itself: its log."""

from fumehood_server.telemetry.logging import configure_logging, get_logger

__all__ = ["configure_logging", "get_logger"]
