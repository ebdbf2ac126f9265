"""Duplicate keys in a JSON object, which are refused: JSON parsers differ in which of the values counts."""

from __future__ import annotations

from collections.abc import Iterable


def first_duplicate(pairs: Iterable[tuple[str, object]]) -> str | None:
    """The first key that repeats an earlier one, or None. Takes time in proportion to the number of pairs."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None
