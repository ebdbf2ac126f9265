"""Calls that a dead sidecar left without an outcome, and that may run again: which, and until when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fumehood_server.journal.entry import CallRow
from fumehood_server.model.recorded import RecordedCall, RecordedState

CHECK_S = 60.0
"""Between two looks for those whose time is over, at most: the clock may be set meanwhile."""


class InterruptedCalls:
    """Filled by recovery. Whoever takes a call gives it its outcome, and nobody else does: on any thread."""

    def __init__(self, window_s: float) -> None:
        """`window_s`: how long a call's id stands for that call."""
        self._window_us = round(window_s * 1e6)
        self._until_us: dict[str, int] = {}

    def keeps(self, row: CallRow, start: Mapping[str, Any], now_us: int) -> bool:
        """Whether the call is left open. `start` is what its first event says."""
        wanted_us = start["data"].get("again_until_us")
        if wanted_us is None:
            return False
        until_us = row.started_us + self._window_us
        until_us = min(until_us, wanted_us) if wanted_us else until_us
        if until_us <= now_us:
            return False
        self._until_us[row.call_id] = until_us
        return True

    def __len__(self) -> int:
        return len(self._until_us)

    def marked(self, call: RecordedCall) -> RecordedCall:
        """The call, marked as interrupted if it is."""
        until_us = self._until_us.get(call.call_id)
        if until_us is None or call.outcome is not None:
            return call
        return replace(call, state=RecordedState.INTERRUPTED, until_us=until_us)

    def take(self, call_id: str) -> bool:
        """Take one. False: somebody has."""
        return self._until_us.pop(call_id, None) is not None

    def take_late(self, now_us: int) -> list[str]:
        """Take those whose time is over."""
        late = [call_id for call_id, until_us in self._until_us.copy().items() if until_us <= now_us]
        return [call_id for call_id in late if self.take(call_id)]

    def due_s(self, now_us: int) -> float | None:
        """In how many seconds to look again. None: there are none."""
        first_us = min(self._until_us.copy().values(), default=None)
        return None if first_us is None else min(math.ceil(max(first_us - now_us, 0) / 1e6), CHECK_S)
