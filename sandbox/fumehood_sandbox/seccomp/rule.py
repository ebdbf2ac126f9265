"""Rules of the deny-list: one system call, and conditions on its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Comparison(Enum):
    """How 32 bits of an argument, after the mask, are compared."""

    IN = "in"
    """Holds when they equal one of the values."""
    NOT_IN = "not in"
    """Holds when they equal none of the values."""
    ANY_BIT = "any bit"
    """Holds when a bit of the mask is set. Takes no values."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of one argument."""

    argument: int
    """Which one, from 0."""
    comparison: Comparison
    values: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF
    high: bool = False
    """Look at the high 32 bits; otherwise at the low ones, which are all that the kernel reads of most arguments."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One denied system call: denied when all conditions hold, so always when there are none.

    Several rules may name one system call; it is denied when any of them denies it.
    """

    syscall: str
    errno: int
    """What the call fails with. 0: it does nothing and says that it worked."""
    conditions: tuple[Condition, ...] = ()
