"""Suggestions for a misspelt word (difflib)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MANY = 12


def nearest(word: str, known: Iterable[str]) -> str:
    """Hint that names the nearest of the `known` words, or all of them where none is near and they are few."""
    words = [str(each) for each in known]
    near = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    if near:
        return f'did you mean "{near[0]}"?'
    if not words or len(words) > _MANY:
        return ""
    return "one of " + ", ".join(f'"{each}"' for each in words)
