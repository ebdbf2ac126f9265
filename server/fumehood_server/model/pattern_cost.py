"""Cost of a regular expression: about how many states its automaton has, without building it.

Building it takes a microsecond for each state at most, in which no other thread of the interpreter runs. Where the
linear engine can't make a deterministic automaton, each character of a text costs some 40 ns for each state.
"""

from __future__ import annotations

import re
from typing import Any

_MANY = 1 << 30
_MOST_DIGITS = 9
_BUILDING = 100
"""What the smallest automata take to build, in states: the literals that a text must hold are looked for as well."""
_PROPERTY = 500
"""A class by a Unicode property (`\\p`) has hundreds of ranges."""

_WIDE = 8
"""A class beyond ASCII, such as every negated one, is several ranges of bytes."""

_FOLDED = 4
"""A letter, or a class, that is k or s (also) in other scripts when case doesn't matter."""

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]|\\[xuU]")
"""In a class, each of which may be a range of its own."""
_MORE_CASES = frozenset({"k", "K", "s", "S", r"\w"})
_CASELESS = re.compile(r"\(\?[a-zA-Z]*i")
_EXTENDED_MODE = re.compile(r"\(\?[a-zA-Z]*x")
"""Spaces say nothing then, which nothing here knows."""

_TOKEN = re.compile(
    r"""
    (?P<property> \\[pP] (?: \{ [^{}]{0,64} \} | . )? )
    | (?P<wide> \\[WDSs] | \. | \\[xuU] \{ [^{}]{0,16} \} )
    | \\ .
    | (?P<counted> \{ \s* (?P<least> [0-9]+ ) \s* (?: , \s* (?P<most> [0-9]* ) \s* )? \} )
    | (?P<repeated> [*+?] )
    | (?P<open> \( (?: \? (?: P? <[^<>]{0,128}> | [a-zA-Z-]* : ) )? )
    | (?P<close> \) )
    | (?P<class> \[ )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
"""What names a class or group is bounded, so that a pattern that opens many and closes none is read in linear time."""


def find_patterns(schema: Any) -> set[str]:  # noqa: ANN401 - any JSON value
    """Every text in a JSON Schema that may be built as a pattern, wherever it stands: references lead anywhere.

    The engine's bindings build each once, however often it stands there.
    """
    found: set[str] = set()
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if isinstance(pattern := each.get("pattern"), str):
                found.add(pattern)
            if isinstance(names := each.get("patternProperties"), dict):
                found |= names.keys()
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    return found


def building_states(pattern: str) -> int:
    """What building the pattern's automaton takes: a microsecond each at most. Raises nothing."""
    return pattern_states(pattern) + _BUILDING


def pattern_states(pattern: str) -> int:
    """About how many states the pattern's automaton has, rather too many than too few; 1 at least. Raises nothing."""
    if _EXTENDED_MODE.search(pattern):
        return _MANY
    folded = _FOLDED if _CASELESS.search(pattern) else 1
    open_groups: list[int] = []
    done = last = at = 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            return _MANY
        at = found.end()
        kind = found.lastgroup
        if kind == "counted":
            last = min(last * max(_times(found["most"] or found["least"]), 1), _MANY)
        elif kind == "repeated":  # what is counted after it is all that it repeats
            last += 1
        elif kind == "open":
            open_groups.append(done + last)
            done = last = 0
        elif kind == "close":
            last += done
            done = open_groups.pop() if open_groups else 0
        else:
            done += last
            if kind == "class":
                last, at = _class_states(pattern, at, folded)
            else:
                last = {"property": _PROPERTY, "wide": _WIDE}.get(kind or "", _literal_states(found[0], folded))
    return max(min(sum(open_groups) + done + last, _MANY), 1)


def _times(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) <= _MOST_DIGITS else _MANY


def _literal_states(text: str, folded: int) -> int:
    if not text.isascii():
        return 4 * folded
    return folded if text in _MORE_CASES else 1


def _class_states(pattern: str, at: int, folded: int) -> tuple[int, int]:
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
    text = pattern[begin : at - 1]
    ranges = len(_BEYOND_ASCII.findall(text)) + (len(text) // _FOLDED if folded > 1 else 0)
    if r"\p" in text or r"\P" in text:
        return _PROPERTY + ranges, at
    is_wide = _BEYOND_ASCII.search(text) or "^" in text or any(each in text for each in (r"\W", r"\D", r"\S", r"\s"))
    return (_WIDE if is_wide else folded) + ranges, at
