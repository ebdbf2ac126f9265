"""How large a batch of calls may be, by its operator's word."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_CONCURRENT = 8
DEFAULT_MAX_CONCURRENT = 32
DEFAULT_MAX_CALLS = 128
MOST_CALLS = 512
"""That an operator may allow: to read as many requests takes some 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchConfig:
    """`[batch]`."""

    max_concurrent: int = DEFAULT_MAX_CONCURRENT
    """Calls of one batch at a time, whatever its caller says."""
    max_calls: int = DEFAULT_MAX_CALLS
    """Calls of one batch."""

    def concurrent(self, wanted: int) -> int:
        """Calls at a time of a batch whose caller wants so many. 0: it says nothing."""
        return min(wanted or DEFAULT_CONCURRENT, self.max_concurrent)
