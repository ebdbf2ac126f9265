"""Calls that a dead sidecar left without an outcome, and that may run again: which, and until when."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fumehood_server.journal.entry import CallRow
from fumehood_server.model.recorded import RecordedCall, RecordedState

CHECK_S = 60.0
"""Between two looks for those whose time is over, at most: the clock may be set meanwhile."""


@dataclass(frozen=True, slots=True)
class _Left:
    """Which call of an id was left open, by whom, and until when."""

    start_position: int
    owner: str
    until_us: int


class InterruptedCalls:
    """Filled by recovery, for any thread. In a file, whoever takes a call gives it its outcome, and nobody else does.

    Where several sidecars share a database, this is what one of them knows of that since its last look: the database
    says whose the call is.
    """

    def __init__(self, window_s: float) -> None:
        """`window_s`: how long a call's id stands for that call."""
        self._window_us = round(window_s * 1e6)
        self._left: dict[str, _Left] = {}
        self.found = 0
        """How many were ever found."""

    def keeps(self, row: CallRow, start: Callable[[], Mapping[str, Any]], now_us: int) -> bool:
        """Whether the call is left open. `start` reads what its first event says."""
        left = self._left.get(row.call_id)
        if left is None or (left.start_position, left.owner) != (row.start_position, row.owner):
            wanted_us = start()["data"].get("again_until_us")
            if wanted_us is None:
                return False
            until_us = row.started_us + self._window_us
            left = _Left(row.start_position, row.owner, min(until_us, wanted_us) if wanted_us else until_us)
            if left.until_us > now_us:
                self._left[row.call_id] = left
                self.found += 1
        return left.until_us > now_us

    def keep_only(self, call_ids: Collection[str]) -> None:
        """Forget all others: recovery did not find them again."""
        for call_id in list(self._left):
            if call_id not in call_ids:
                self._left.pop(call_id, None)

    def __len__(self) -> int:
        return len(self._left)

    def marked(self, call: RecordedCall) -> RecordedCall:
        """The call, marked as interrupted if it is."""
        left = self._left.get(call.call_id)
        if left is None or call.outcome is not None:
            return call
        if (left.start_position, left.owner) != (call.start_position, call.sidecar):  # somebody goes on with it
            return call
        return replace(call, state=RecordedState.INTERRUPTED, until_us=left.until_us)

    def take(self, call_id: str) -> bool:
        """Take one. False: somebody has."""
        return self._left.pop(call_id, None) is not None

    def take_late(self, now_us: int) -> list[str]:
        """Take those whose time is over."""
        late = [call_id for call_id, left in self._left.copy().items() if left.until_us <= now_us]
        return [call_id for call_id in late if self.take(call_id)]

    def due_s(self, now_us: int) -> float | None:
        """In how many seconds to look again. None: there are none."""
        first_us = min((left.until_us for left in self._left.copy().values()), default=None)
        return None if first_us is None else min(math.ceil(max(first_us - now_us, 0) / 1e6), CHECK_S)
