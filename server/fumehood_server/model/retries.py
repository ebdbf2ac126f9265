"""How often a call may be tried, by its operator's word."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MAX_ATTEMPTS = 5
MOST_ATTEMPTS = 100
"""That an operator may allow. Waits of 10 s between them are 16 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """`[retry]`: attempts of a call whose tool may run twice, the first one included."""

    default_attempts: int = 1
    """Where the caller says nothing."""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    """Whatever the caller says."""

    def attempts(self, wanted: int) -> int:
        """Most attempts of a call whose caller wants so many. 0: it says nothing."""
        return min(wanted or self.default_attempts, self.max_attempts)
