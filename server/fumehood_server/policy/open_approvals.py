"""The open approvals of one sidecar: a heap by the time at which each expires, and how many each caller has."""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Iterator

from fumehood_server.model.approvals import Approval, Subject


class OpenApprovals:
    """What is known of them. The journal has the approvals themselves."""

    def __init__(self) -> None:
        """None is known yet."""
        self._expiry: dict[str, int] = {}
        """When each expires."""
        self._due: list[tuple[int, str]] = []
        """The same as a heap, with entries that no longer hold."""
        self._askers: dict[str, tuple[str, str]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._recording = 0

    def __len__(self) -> int:
        """How many there are, with those that are being recorded."""
        return len(self._expiry) + self._recording

    def count_of(self, subject: Subject) -> int:
        """How many the caller has who asks for this."""
        return self._counts[_asker(subject)]

    @contextlib.contextmanager
    def place_for(self, subject: Subject) -> Iterator[None]:
        """Count one more while it is being recorded. It may be counted twice for a moment, and is never not counted."""
        asker = _asker(subject)
        self._recording += 1
        self._counts[asker] += 1
        try:
            yield
        finally:
            self._recording -= 1
            self._discount(asker)

    def note(self, approval: Approval) -> bool:
        """Take it up as it is now. Whether it is the next one to expire, which it was not before."""
        approval_id, at = approval.approval_id, approval.expires_us
        if not approval.state.is_open:
            self.forget(approval_id)
            return False
        if self._expiry.get(approval_id) == at:
            return False
        if approval_id not in self._expiry:
            self._askers[approval_id] = asker = _asker(approval.asked)
            self._counts[asker] += 1
        self._expiry[approval_id] = at
        heapq.heappush(self._due, (at, approval_id))
        return self._due[0] == (at, approval_id)

    def forget(self, approval_id: str) -> None:
        """It is closed."""
        if self._expiry.pop(approval_id, None) is None:
            return
        self._discount(self._askers.pop(approval_id))

    def _discount(self, asker: tuple[str, str]) -> None:
        self._counts[asker] -= 1
        if not self._counts[asker]:
            del self._counts[asker]

    def next_due(self) -> tuple[int, str] | None:
        """When the next one expires (POSIX time, microseconds), and which. None: none is open."""
        while self._due and self._expiry.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0] if self._due else None


def _asker(subject: Subject) -> tuple[str, str]:
    """By name. Those without one are one by the way they come: anybody can open another connection."""
    return (subject.caller, "" if subject.caller else subject.caller_authenticated_by)
