"""How often a call may be tried, by its operator's word, and the exponential backoff between two attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass

DEFAULT_MAX_ATTEMPTS = 5
MOST_ATTEMPTS = 100
"""That an operator may allow. Waits of 10 s between them are 16 minutes."""
FIRST_DELAY_S, LONGEST_DELAY_S, JITTER = 0.1, 10.0, 0.25


def backoff_s(failures: int, asked_s: object = None) -> float:
    """How long to wait after so many failures in a row. `asked_s`, what failed asks for, can lengthen it alone."""
    spread = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load
    wait_s: float = min(FIRST_DELAY_S * 2 ** min(failures - 1, 16) * spread, LONGEST_DELAY_S)
    asked = asked_s if isinstance(asked_s, int | float) and not isinstance(asked_s, bool) else 0
    return max(wait_s, asked)


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
