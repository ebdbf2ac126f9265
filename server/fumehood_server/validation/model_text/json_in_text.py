"""Finds the JSON in a model's text: all of it, code fences (CommonMark), or values with prose around."""

from __future__ import annotations

import json
from collections.abc import Iterator

FENCE = "```"
_MAX_FENCES = 16
_MAX_SPANS = 64
"""Values in one text. What has more is no answer with a word around it."""

_DECODER = json.JSONDecoder()


def fenced(text: str) -> Iterator[str]:
    """What stands in code fences, without the word after the opening one. An unclosed fence goes to the end."""
    at = 0
    for _ in range(_MAX_FENCES):
        start = text.find(FENCE, at)
        if start < 0:
            return
        start += len(FENCE)
        end = text.find(FENCE, start)
        end = len(text) if end < 0 else end
        yield _after_info(text[start:end]).strip()
        at = end + len(FENCE)


def spans(text: str) -> Iterator[str]:
    """Objects and arrays with prose around them, up to the first bracket that begins no JSON.

    What comes after that one is left alone: it is more likely a part of a broken value than a value of its own.
    """
    at = 0
    for _ in range(_MAX_SPANS):
        start = next_bracket(text, at)
        if start < 0:
            return
        try:
            _, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            return
        yield text[start:at]


def broken(text: str) -> str:
    """The part of a text that comes nearest to JSON, from its first bracket. Empty: nothing in it does."""
    longest = max(fenced(text), key=len, default="")
    if next_bracket(longest) >= 0:
        text = longest
    start = next_bracket(text)
    return "" if start < 0 else text[start:]


def next_bracket(text: str, at: int = 0) -> int:
    """Where the next object or array may begin; -1: nowhere."""
    found = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(found, default=-1)


def _after_info(block: str) -> str:
    """A block without its info string, such as `json`, which ends at the line's end or, in one line, at a space."""
    line, newline, rest = block.partition("\n")
    if newline and next_bracket(line) < 0 and '"' not in line:
        return rest
    word = line.lstrip().split(" ", 1)[0]
    return block.lstrip()[len(word) :] if word.isalpha() and word not in {"true", "false", "null"} else block
