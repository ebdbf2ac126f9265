"""When a stream that ended without its answer is resumed: MCP 2025-11-25, Streamable HTTP, resumability."""

from __future__ import annotations

from fumehood_sdk.adapters.mcp.remote.event_stream import StreamPosition

DELAY_MS = 1000
"""Before a resumption, where the server doesn't say how long."""
MIN_DELAY_MS = 100
"""A server that says 0, and ends each stream at once, is not asked more often."""
MAX_DELAY_MS = 300_000
"""A server is never asked sooner than it says; one that says more is not asked again."""
MAX_FUTILE_TRIES = 5
"""In a row, that brought no further event."""
MAX_RESUMED_S = 3600.0
"""From the first one to the last. As long as a tool may run."""


class Resumption:
    """The tries to resume one stream."""

    __slots__ = ("_futile", "_last_tried", "_position", "_until")

    def __init__(self, position: StreamPosition, now: float) -> None:
        """`now` is of time.monotonic."""
        self._position = position
        self._until = now + MAX_RESUMED_S
        self._last_tried = b""
        self._futile = 0

    def next_delay_s(self, now: float) -> float | None:
        """How long to wait before the next try, which counts from now on. None: there is none."""
        position = self._position
        if not position.last_event_id or now >= self._until:
            return None
        self._futile = self._futile + 1 if position.last_event_id == self._last_tried else 0
        self._last_tried = position.last_event_id
        delay_ms = DELAY_MS if position.retry_ms is None else max(position.retry_ms, MIN_DELAY_MS)
        return delay_ms / 1000 if self._futile < MAX_FUTILE_TRIES and delay_ms <= MAX_DELAY_MS else None
