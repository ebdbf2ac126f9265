"""What a deny-list says of one system call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Comparison(Enum):
    """How the low 32 bits of an argument, after the mask, are compared."""

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


@dataclass(frozen=True, slots=True)
class Rule:
    """One denied system call: denied when all conditions hold, so always when there are none.

    Several rules may name one system call; it is denied when any of them denies it.
    """

    syscall: str
    errno: int
    conditions: tuple[Condition, ...] = ()
