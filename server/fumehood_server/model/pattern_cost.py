"""Cost of a regular expression: about how many states its automaton has, without building it.

Where the linear engine can't make a deterministic automaton, each character of a text costs some 40 ns for each state.
"""

from __future__ import annotations

import re

_MANY = 1 << 30
_PROPERTY = 500
"""A class by a Unicode property (`\\p`) has hundreds of ranges."""

_WIDE = 8
"""A class beyond ASCII, such as every negated one, is several ranges of bytes."""

_EXTENDED_MODE = re.compile(r"\(\?[a-zA-Z]*x")
"""Spaces say nothing then, which nothing here knows."""

_TOKEN = re.compile(
    r"""
    (?P<property> \\[pP] (?: \{ [^}]* \} | . )? )
    | (?P<wide> \\[WDSs] | \. )
    | \\ .
    | (?P<counted> \{ (?P<least> [0-9]{1,9} ) (?: , (?P<most> [0-9]{0,9} ) )? \} )
    | (?P<open> \( (?: \? (?: P? <[^>]*> | [a-zA-Z-]* : ) )? )
    | (?P<close> \) )
    | (?P<class> \[ )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def pattern_states(pattern: str) -> int:
    """About how many states the pattern's automaton has, rather too many than too few; 1 at least. Raises nothing."""
    if _EXTENDED_MODE.search(pattern):
        return _MANY
    open_groups: list[int] = []
    done = last = at = 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            return _MANY
        at = found.end()
        kind = found.lastgroup if found.lastgroup != "most" else "counted"
        if kind == "counted":
            last = min(last * max(int(found["least"]), int(found["most"] or 0), 1), _MANY)
        elif kind == "open":
            open_groups.append(done + last)
            done = last = 0
        elif kind == "close":
            last += done
            done = open_groups.pop() if open_groups else 0
        else:
            done += last
            if kind == "class":
                last, at = _class_states(pattern, at)
            else:
                last = {"property": _PROPERTY, "wide": _WIDE}.get(kind or "", 1 if found[0].isascii() else 4)
    return max(min(sum(open_groups) + done + last, _MANY), 1)


def _class_states(pattern: str, at: int) -> tuple[int, int]:
    """States of the class that has begun before `at`, and where it ends."""
    begin, depth, empty = at, 1, True
    while at < len(pattern) and depth:
        each = pattern[at]
        if each == "\\":
            at += 1
        elif each == "[":
            depth += 1
        elif each == "]" and not empty:
            depth -= 1
        empty = empty and each == "^"
        at += 1
    text = pattern[begin:at]
    if r"\p" in text or r"\P" in text:
        return _PROPERTY, at
    wide = "^" in text or not text.isascii() or any(each in text for each in (r"\W", r"\D", r"\S", r"\s", r"\x", r"\u"))
    return (_WIDE if wide else 1), at
