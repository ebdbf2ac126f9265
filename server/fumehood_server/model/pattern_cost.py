r"""Cost of a regular expression: about what its automaton takes to build and to match, without building it.

Building takes a microsecond for each state that is counted here, on an idle machine, in which no other thread of the
interpreter runs. Where the linear engine can't make a deterministic automaton, each character of a text costs some
40 ns for each state.

What is read but makes no state counts once: the characters, the items of a class, which the engine unites one by one,
and `\d` and its like, for each of which the engine's bindings read the whole pattern anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fumehood_server.model.pattern_classes import (
    FOLDED,
    FOLDED_ALL,
    MANY,
    PERL_CHARS,
    PERL_STATES,
    WIDE,
    is_known_property,
    property_states,
    read_class,
)

_MOST_DIGITS = 9
_BUILDING = 100
"""What the smallest automata take to build, in states."""
_READ_AT_ONCE = 20_000
"""A longer pattern is not looked at: its characters alone are too many."""

_ESCAPES_READ_TOGETHER = 5
"""Reading a pattern once more takes a fifth of a microsecond for each of its characters."""

_MORE_CASES = frozenset({"k", "K", "s", "S", r"\w"})
_CASELESS = re.compile(r"\(\?[a-zA-Z]*i")
_EXTENDED_MODE = re.compile(r"\(\?[a-zA-Z]*x")
"""Spaces say nothing then, which nothing here knows."""
_MANY_LINES = re.compile(r"\(\?[a-zA-Z]*m")

_READING = {"open": 1, "or": 6, "repeated": 8}
"""For each of the literals that a text may hold there, which are looked for from every place."""
_READING_COUNTED = 50
"""`[a-j]{3}` is a thousand literals."""
_READING_COUNTED_FROM_START = 5
"""Where the whole pattern begins with `^`, none is looked for in its middle."""

_TOKEN = re.compile(
    r"""
    (?P<property> \\[pP] (?: \{ [^{}]{0,64} \} | . )? )
    | (?P<perl> \\ [dDwWsS] )
    | (?P<control> \\c [A-Za-z] )
    | (?P<wide> \. | \\[xuU] \{ [^{}]{0,16} \} )
    | \\ .
    | (?P<counted> \{ \s* (?P<least> [0-9]* ) \s* (?: , \s* (?P<most> [0-9]* ) \s* )? \} )
    | (?P<repeated> [*+?] )
    | (?P<or> \| )
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


@dataclass(frozen=True, slots=True)
class PatternCost:
    """What one pattern costs."""

    states: int
    """About how many its automaton has, rather too many than too few; 1 at least."""
    reading: int
    """Takes as long to build as so many states."""

    @property
    def building(self) -> int:
        """What building the automaton takes: about a microsecond each at most."""
        return self.states + self.reading + _BUILDING


def pattern_costs(schema: Any, most: int) -> dict[str, PatternCost] | None:  # noqa: ANN401 - any JSON value
    """The cost of each pattern in a JSON Schema. None: to build, they take more than `most` together."""
    patterns = find_patterns(schema)
    if sum(map(len, patterns)) > most:  # each character counts, and reading it here takes a microsecond or two
        return None
    found: dict[str, PatternCost] = {}
    left = most
    for each in patterns:
        found[each] = pattern_cost(each)
        left -= found[each].building
        if left < 0:
            return None
    return found


def building_states(pattern: str) -> int:
    """`PatternCost.building`. Raises nothing."""
    return pattern_cost(pattern).building


def pattern_states(pattern: str) -> int:
    """`PatternCost.states`. Raises nothing."""
    return pattern_cost(pattern).states


def pattern_cost(pattern: str) -> PatternCost:
    """What a pattern costs, whether it can be built or not. Raises nothing."""
    if len(pattern) > _READ_AT_ONCE or _EXTENDED_MODE.search(pattern):
        return PatternCost(MANY, MANY)
    folded = FOLDED if _CASELESS.search(pattern) else 1
    from_start = pattern.startswith("^") and not _MANY_LINES.search(pattern)
    counted = _READING_COUNTED_FROM_START if from_start else _READING_COUNTED
    open_groups: list[int] = []
    done = last = at = reading = escapes = 0
    chars = len(pattern)
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            return PatternCost(MANY, MANY)
        kind, token = found.lastgroup or "", found[0]
        at = found.end()
        reading += len(token) - 1 + _READING.get(kind, 0)
        if kind == "counted":
            last = min(last * max(_times(found["most"] or found["least"]), 1), MANY)
            reading += counted
        elif kind == "repeated":  # what is counted after it is all that it repeats
            last += 1
        elif kind == "open":
            open_groups.append(done + last)
            done, last = 1, 0
        elif kind == "close":
            last += done
            done = open_groups.pop() if open_groups else 0
        else:
            done += last
            if kind == "class":
                made, end = read_class(pattern, at, folded)
                last = made.states
                reading += made.total_reading(end - at)
                escapes += made.escapes if made.is_combined else 0
                chars += made.more_chars
                at = end
            else:
                last = _literal_states(kind, token, folded)
                reading += FOLDED_ALL if folded > 1 and kind == "property" and not is_known_property(token) else 0
                escapes += kind in {"perl", "control"}
                chars += PERL_CHARS[token[1]] if kind == "perl" else 0
    states = max(min(sum(open_groups) + done + last, MANY), 1)
    return PatternCost(states, min(reading + escapes * chars // _ESCAPES_READ_TOGETHER, MANY))


def _times(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) <= _MOST_DIGITS else MANY


def _literal_states(kind: str, text: str, folded: int) -> int:
    if kind == "property":
        return property_states(text, folded)
    if kind == "wide":
        return WIDE
    if kind == "perl":
        return max(PERL_STATES[text[1]], folded if text in _MORE_CASES else 1)
    if not text.isascii():
        return 4 * folded
    return folded if text in _MORE_CASES else 1
