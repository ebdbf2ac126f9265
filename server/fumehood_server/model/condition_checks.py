"""What makes a condition over arguments one that can be tried on the event loop: pointer, range and pattern."""

from __future__ import annotations

import math

import jsonschema_rs

from fumehood_server.model.pattern_cost import building_states
from fumehood_server.model.policy import Condition
from fumehood_server.model.schema import compile_schema

MAX_STATES = 1_000
"""Of a pattern (`building_states`). The event loop waits until it is built, and for each match."""
MAX_CHARS = 1_024
MAX_VALUES = 1_024
MAX_VALUE_CHARS = 16_384


def condition_problem(condition: Condition) -> str:
    """Why a condition that somebody has sent can't be honoured. Empty: it can be."""
    pointer, pattern = condition.pointer, condition.pattern
    bounds = [each for each in (condition.min, condition.max) if each is not None]
    texts = [each for each in condition.equals if isinstance(each, str)]
    problems = (
        (pointer and not pointer.startswith("/"), "is no JSON pointer (RFC 6901), which begins with /"),
        (max(len(pointer), len(pattern)) > MAX_CHARS, f"pointer and pattern have at most {MAX_CHARS:,} characters"),
        (len(condition.equals) > MAX_VALUES, f"names more than {MAX_VALUES:,} values"),
        (any(len(each) > MAX_VALUE_CHARS for each in texts), f"names a value of over {MAX_VALUE_CHARS:,} characters"),
        (not (condition.equals or pattern or bounds), "says nothing: give values, a pattern or a range"),
        (any(not math.isfinite(each) for each in bounds), "has a range that is no number"),
        (bounds != sorted(bounds), "has a least value above its greatest"),
    )
    found = next((problem for is_so, problem in problems if is_so), "")
    return found or (pattern_problem(pattern)[0] if pattern else "")


def pattern_problem(pattern: str) -> tuple[str, str]:
    """Why a pattern is not taken, and what can be written instead. Empty: it is taken."""
    if building_states(pattern) > MAX_STATES:
        return f"`pattern` takes more than {MAX_STATES:,} states", "repeat less in it, as by {1,20}"
    try:
        compile_schema({"pattern": pattern})
    except (jsonschema_rs.ValidationError, ValueError):
        return (
            "`pattern` is no regular expression that can be matched in linear time",
            r"look-around ((?=…), (?!…), (?<=…), (?<!…)) and back-references (\1) are not taken",
        )
    return "", ""
