"""The text that stands for a secret in arguments that are shown: what comes back with it is not what is to run."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Iterator

_INLINE_CHARS = 16 * 1024
"""Searched on the event loop, in under a millisecond."""
_SEARCHED_CHARS = 64 * 1024
"""Searched at once, in some 2 ms: a thread can't let the event loop in before."""
_PAUSE_S = 0.0001


async def placeholder_in(document: str, secrets: Collection[str]) -> str:
    """One that is in a JSON document, however its strings are escaped. Empty: none is."""
    if len(document) <= _INLINE_CHARS:
        return next(_found(document, secrets), "")
    return await asyncio.to_thread(_first, document, secrets)


def _first(document: str, secrets: Collection[str]) -> str:
    for found in _found(document, secrets):
        if found:
            return found
        time.sleep(_PAUSE_S)
    return ""


def _found(document: str, secrets: Collection[str]) -> Iterator[str]:
    """Those that are there; empty texts in between."""
    if not secrets:
        return
    # The names are tried only after what they all begin with.
    names = "|".join(f"({_written(each)})" for each in secrets)
    pattern = re.compile(f"{_written('[secret ')}(?:{names}){_written(']')}")
    longest = len(r"\u0000") * (len("[secret ]") + max(map(len, secrets)))
    for at in range(0, len(document), _SEARCHED_CHARS):
        for match in pattern.finditer(document, at, at + _SEARCHED_CHARS + longest):
            if match.group()[0] != "\\" or _is_escape(document, match.start()):
                yield f"[secret {tuple(secrets)[(match.lastindex or 1) - 1]}]"
        yield ""


def _written(text: str) -> str:
    """A pattern of ASCII text in a JSON string, where any of its characters may be escaped by its number."""
    return "".join(f"(?:{re.escape(each)}|\\\\u(?i:{ord(each):04x}))" for each in text)


def _is_escape(document: str, at: int) -> bool:
    """Whether the backslash there begins an escape, and is not escaped itself."""
    start = at
    while start and document[start - 1] == "\\":
        start -= 1
    return (at - start) % 2 == 0


__all__ = ["placeholder_in"]
