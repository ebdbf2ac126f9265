"""Cost of the character classes of a regular expression, in the states of `pattern_cost`.

The engine's bindings read them as JavaScript does: the first `]` ends one, and `[`, `&&` and `[:alpha:]` are literals
in it. For the engine, which is given what they make of it, they are not. What costs more counts where the two differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MANY = 1 << 30
"""States of what can't be told."""
WIDE = 8
"""A class beyond ASCII, such as every negated one, is several ranges of bytes."""
PERL_STATES = {"d": 1, "w": 1, "s": WIDE, "D": WIDE, "W": WIDE, "S": 12}
PERL_CHARS = {"d": 5, "w": 12, "s": 24, "D": 6, "W": 13, "S": 25}
"""Of what the bindings put in their place, since in JavaScript they mean ASCII."""
_PROPERTY_STATES = {
    "L": 240,
    "Lo": 240,
    "Ll": 160,
    "Lu": 160,
    "M": 150,
    "Mn": 160,
    "N": 80,
    "Nd": 40,
    "P": 90,
    "S": 130,
    "Z": 8,
    "Zs": 8,
}
_NEGATED = 30
_PROPERTY = 500
"""Any other class by a Unicode property (`\\p`), and any without regard to case: it has hundreds of ranges."""

FOLDED = 4
"""A letter, or a class, that is k or s (also) in other scripts when case doesn't matter."""
_FOLDED_RANGE = 16
_FOLDED_LONG_RANGE = 300
"""Each character of a range is looked up then: of such a one at most 2^16."""
FOLDED_ALL = 6_000
"""All of Unicode is looked up, as in `(?i)[x\\W]`."""
_READING_ITEM = 10
_READING_OPERATOR = 20
_READING_SPACES = 30
_READING_PROPERTY = 50
_READING_COMBINED_PROPERTY = 400
"""Beside a bracket or an operator, or without regard to case."""
_RANGES_READ_TOGETHER = 64
"""Each item of a class is united with all ranges before it."""


_CLASS_TOKEN = re.compile(
    r"""
    (?P<property> \\[pP] (?: \{ [^{}]{0,64} \} | . )? )
    | (?P<perl> \\ [dDwWsS] )
    | (?P<control> \\c [A-Za-z] )
    | (?P<long> - [\u0080-\uffff] )
    | (?P<endless> [\U00010000-\U0010ffff] | \\U | \\[xu]\{ )
    | (?P<range> [^\x00-\x7f] | \\ [xu] )
    | \\ .
    | (?P<bracket> \[ )
    | (?P<close> \] )
    | (?P<operator> && | -- | ~~ )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


_CLASS_BEGIN = re.compile(r"\[\^?\]?")
_ITEMS = frozenset({"property", "perl", "bracket", "operator"})
_RANGES = frozenset({"range", "long", "endless"})


def property_states(text: str, folded: int) -> int:
    r"""States of `\pL`, `\p{Lu}` and their like."""
    if folded > 1 or not is_known_property(text):
        return _PROPERTY
    return _PROPERTY_STATES[_name(text)] + (_NEGATED if text[1] == "P" else 0)


def is_known_property(text: str) -> bool:
    """Whether it is known how many ranges it has, and that it isn't nearly all of Unicode."""
    return _name(text) in _PROPERTY_STATES


def _name(text: str) -> str:
    return text[2:].strip("{}")


@dataclass(slots=True)
class CharacterClass:
    """A class that is read: each of its items counts, since they may all differ."""

    is_folded: bool
    """Whether case doesn't matter."""
    is_combined: bool
    """Whether classes may stand within it, operators, or control characters."""
    states: int
    begins_with_end: bool
    """Whether `]` is its first character: for the bindings it ends there, and `[` isn't a literal any more."""
    items: int = 0
    properties: int = 0
    reading: int = 0
    escapes: int = 0
    """For which the bindings read the whole pattern once more, where it is combined."""
    more_chars: int = 0
    """By which the bindings make it longer."""

    def add(self, kind: str, token: str) -> None:
        """Count what is read next, of the kind that it has in `_CLASS_TOKEN`."""
        self.items += kind in _ITEMS
        self.properties += kind == "property"
        self.is_combined = self.is_combined or kind in {"bracket", "operator", "control"}
        self.states += self._states(kind, token)
        self.reading += _READING_OPERATOR if kind == "operator" else 0
        self.reading += self._reading_without_case(kind, token) if self.is_folded else 0
        self.escapes += kind in {"perl", "control"}
        if kind == "perl":
            self.more_chars += PERL_CHARS[token[1]]
            self.reading += _READING_SPACES if token[1] in "sS" else 0

    def _states(self, kind: str, token: str) -> int:
        if kind == "property":
            return property_states(token, FOLDED if self.is_folded else 1)
        if kind == "perl":
            return PERL_STATES[token[1]] if token[1] not in "dw" else 0
        if kind in _RANGES:
            return (FOLDED if kind == "range" else _FOLDED_RANGE) if self.is_folded else 1
        return MANY if kind == "bracket" and self.begins_with_end else 0

    def _reading_without_case(self, kind: str, token: str) -> int:
        if kind == "endless" or (kind in {"property", "perl"} and _is_wide(kind, token)):
            return FOLDED_ALL
        return _FOLDED_LONG_RANGE if kind == "long" else 0

    def total_reading(self, chars: int) -> int:
        """`PatternCost.reading` of a class of so many characters."""
        of_each = _READING_ITEM + self.states // _RANGES_READ_TOGETHER
        of_property = _READING_COMBINED_PROPERTY if self.is_combined else _READING_PROPERTY
        return self.reading + chars + self.items * of_each + self.properties * of_property


def read_class(pattern: str, begin: int, folded: int) -> tuple[CharacterClass, int]:
    """The class whose bracket stands before `begin`, and where it ends."""
    opening = _CLASS_BEGIN.match(pattern, begin - 1)
    text = opening[0] if opening else ""
    found = CharacterClass(
        is_folded=folded > 1,
        is_combined=folded > 1 or text.endswith("]"),
        states=folded + (WIDE if "^" in text else 0),
        begins_with_end=text.endswith("]"),
    )
    at = begin - 1 + len(text)
    while token := _CLASS_TOKEN.match(pattern, at):
        at = token.end()
        if token.lastgroup == "close":
            break
        found.add(token.lastgroup or "", token[0])
    return found, at


def _is_wide(kind: str, item: str) -> bool:
    """Whether an item of a class may be nearly all of Unicode."""
    if kind == "property":
        return item[1] == "P" or not is_known_property(item)
    return item[1] in "DWS"
