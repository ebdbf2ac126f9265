"""Patterns made of hostile parts, repeated as often as a bound on their cost allows."""

from __future__ import annotations

import random

from fumehood_server.model.pattern_cost import building_states

_CLASSES = ("L", "Lu", "Ll", "Lo", "M", "Mn", "N", "Nd", "P", "S", "Z", "Cn", "Alphabetic", "Latin", "Any", "gcb=LV")
_LITERALS = ("a", "k", "é", "一", "\U00010000", r"\.", r"\x61", r"\u{1F600}", r"\b", "^", "$", ".", r"\d", r"\w", r"\s")
_LITERALS += (r"\S", r"\W", r"\D", r"\cA", *(rf"\p{{{each}}}" for each in _CLASSES), r"\P{L}", r"\P{Nd}")
_ITEMS = ("a", "a-z", "0-9", "é", "à-ÿ", r"\x61", r"\d", r"\w", r"\s", r"\S", r"\W", r"\D", "[:alpha:]", "[:^digit:]")
_ITEMS += ("[a]", "[^a]", r"[^\p{L}]", r"[\p{L}&&\p{M}]", r"&&\p{L}", "--a", "~~[a-f]", "Ā-ɏ", r"\P{M}", r"\p{S}")
_ITEMS += ("[", "[", r"\cA", r"\]", "&&")
_CLASS_BEGINS = ("[x", "[^x", "[x", "[^x", "[]", "[^]")
_AFTER_CLASS = ("", "", "", r"(a{20}){3}", r"(\pL{2}){2}")
_GROUPS = ("(", "(?:", "(?i:", "(?<name>")
_REPETITIONS = ("", "", "", "?", "*", "+", "{2}", "{0,3}", "{1,20}", "{3}{2}", "{50}", "??")
_STARTS = ("", "", "^", "(?i)", "(?m)^")


def random_pattern(seed: random.Random, most: int) -> str:
    """A pattern that costs at most so many states, and mostly not much less. Not every one is valid."""
    start, part = seed.choice(_STARTS), "".join(_repeated(seed, 2) for _ in range(seed.choice((1, 1, 2, 3))))
    made, times = start, 1
    while building_states(longer := start + part * times) <= most and len(longer) < most:
        made, times = longer, times * 2
    return made


def _repeated(seed: random.Random, depth: int) -> str:
    return _atom(seed, depth) + seed.choice(_REPETITIONS)


def _atom(seed: random.Random, depth: int) -> str:
    kind = seed.random()
    if kind < 0.3:
        inside = "".join(seed.choice(_ITEMS) * seed.choice((1, 1, 5, 50)) for _ in range(seed.choice((1, 2, 8))))
        return f"{seed.choice(_CLASS_BEGINS)}{inside}]{seed.choice(_AFTER_CLASS)}"
    if kind < 0.7 or not depth:
        return seed.choice(_LITERALS)
    branches = (
        "".join(_atom(seed, depth - 1) for _ in range(seed.choice((0, 1, 2)))) for _ in range(seed.choice((1, 2)))
    )
    return seed.choice(_GROUPS) + "|".join(branches) + ")"
