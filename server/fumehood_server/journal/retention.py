"""Retention of payloads: removes arguments and results after a time, a slice at a time. Events and the tree stand."""

from __future__ import annotations

import time

from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.recovery import QUEUED_US
from fumehood_server.journal.store import Store
from fumehood_server.model.events import NOBODY, PayloadsPruned

SLICE_PAYLOADS = 500
"""Removed in one transaction, which takes some milliseconds."""
BUDGET_S = 0.05
"""Within each second: what is written meanwhile waits for that long at most."""
AGAIN_S = 1.0
"""Until the next slices, where there are more."""
MAX_INTERVAL_S = 600.0
"""Until the next look, where there are none: each removal is an event. Less where little time is asked for: a tenth."""
_NS_OF_US = 1_000
_DAY_US = 86_400_000_000


class Retention:
    """Upkeep of the writer's thread: removes what is older than the operator wants it kept."""

    def __init__(self, keep_d: float, *, sidecar: str) -> None:
        """`keep_d`: days. `sidecar` names this process in its events."""
        self._keep_us = round(keep_d * _DAY_US)
        self._sidecar = sidecar
        self._interval_s = min(MAX_INTERVAL_S, max(self._keep_us / 1e7, AGAIN_S))
        self._due = 0.0

    def __call__(self, store: Store) -> float:
        """Remove some, if it is time for that. Returns in how many seconds it will be again.

        Raises:
            StoreError: they can't be removed now.
        """
        began = time.monotonic()
        if began < self._due:
            return self._due - began
        before_us = time.time_ns() // _NS_OF_US - self._keep_us
        wait_s = AGAIN_S
        while time.monotonic() - began < BUDGET_S:
            if prune_slice(store, before_us, sidecar=self._sidecar) < SLICE_PAYLOADS:
                wait_s = self._interval_s
                break
        self._due = time.monotonic() + wait_s
        return wait_s


def prune_slice(store: Store, before_us: int, *, sidecar: str) -> int:
    """Remove the oldest payloads from before a time, `SLICE_PAYLOADS` or a few more. Returns how many.

    Raises:
        StoreError: they can't be removed now.
    """

    def event(up_to: int, count: int, last_us: int) -> Entry:
        # Before what waits to be written: events are found by their times, which never fall.
        time_us = max(last_us, time.time_ns() // _NS_OF_US - QUEUED_US)
        return encode(PayloadsPruned(up_to=up_to, count=count), NOBODY, time_us=time_us, sidecar=sidecar)

    return store.prune(before_us, SLICE_PAYLOADS, event)
