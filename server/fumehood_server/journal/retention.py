"""Retention: removes arguments and results, or whole events, after a time, a slice at a time. The tree stands."""

from __future__ import annotations

import time
from collections.abc import Callable

from fumehood_server.journal.encoding import encode
from fumehood_server.journal.entry import Entry
from fumehood_server.journal.recovery import QUEUED_US
from fumehood_server.journal.store import Pruned, Store
from fumehood_server.model.events import NOBODY, EventsPruned, PayloadsPruned

SLICE_PAYLOADS = 500
"""Removed in one transaction, which takes some milliseconds."""
SLICE_EVENTS = 1024
"""Likewise."""
BUDGET_S = 0.05
"""Within each second: what is written meanwhile waits for that long at most."""
AGAIN_S = 1.0
"""Until the next slices, where there are more."""
MAX_INTERVAL_S = 600.0
"""Until the next look, where there are none: each removal is an event. Less where little time is asked for: a tenth."""
_NS_OF_US = 1_000
_DAY_US = 86_400_000_000


Prune = Callable[[Store, int, str], bool]
"""Removes a slice of what is older than a time, under a sidecar's name. False: nothing is left to be removed."""


class Retention:
    """Upkeep of the writer's thread: removes what is older than the operator wants it kept."""

    def __init__(self, keep_d: float, what: Prune, *, sidecar: str) -> None:
        """`keep_d`: days. `what`: `remove_payloads` or `remove_events`. `sidecar` names this process in its events."""
        self._prune = what
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
            if not self._prune(store, before_us, self._sidecar):
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


def prune_events_slice(store: Store, before_us: int, *, sidecar: str) -> int:
    """Remove the next `SLICE_EVENTS` whole events from before a time. Returns how many it came by.

    Raises:
        StoreError: they can't be removed now.
    """

    def event(pruned: Pruned, last_us: int) -> Entry:
        time_us = max(last_us, time.time_ns() // _NS_OF_US - QUEUED_US)
        said = EventsPruned(up_to=pruned.up_to, until_us=pruned.until_us, removed=pruned.removed)
        return encode(said, NOBODY, time_us=time_us, sidecar=sidecar)

    return store.prune_events(before_us, SLICE_EVENTS, event)


def remove_payloads(store: Store, before_us: int, sidecar: str) -> bool:
    """See `Prune`."""
    return prune_slice(store, before_us, sidecar=sidecar) >= SLICE_PAYLOADS


def remove_events(store: Store, before_us: int, sidecar: str) -> bool:
    """See `Prune`."""
    return prune_events_slice(store, before_us, sidecar=sidecar) >= SLICE_EVENTS
