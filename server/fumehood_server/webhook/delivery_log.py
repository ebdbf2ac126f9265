"""Counts and log lines of the webhook, at a bounded rate: a receiver that is down is told of once a minute."""

from __future__ import annotations

import time

from fumehood_server.telemetry import get_logger
from fumehood_server.telemetry.metrics import SidecarMetrics

_EVERY_S = 60.0


class DeliveryLog:
    """Of messages to one receiver. For one event loop."""

    def __init__(self, receiver: str, metrics: SidecarMetrics | None) -> None:
        """`receiver` is its host and port: its path may have a key in it."""
        self._receiver = receiver
        self._metrics = metrics
        self._failures = 0
        """Since the last line."""
        self._logged_s: float | None = None
        """When the last line was written. None: it takes messages."""

    def delivered(self) -> None:
        """One was taken."""
        self._count("delivered")
        if self._logged_s is not None:
            get_logger().info("approvals_sent_again", receiver=self._receiver)
            self._logged_s, self._failures = None, 0

    def failed(self, outcome: str, problem: str) -> None:
        """One was not."""
        self._count(outcome)
        self._failures += 1
        now_s = time.monotonic()
        if self._logged_s is None or now_s - self._logged_s >= _EVERY_S:
            get_logger().warning(
                "approval_not_sent", receiver=self._receiver, message=problem, reason=outcome, times=self._failures
            )
            self._logged_s, self._failures = now_s, 0

    def _count(self, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.webhook_messages.add(outcome)


__all__ = ["DeliveryLog"]
