"""Tests of a call's arguments: JSON pointer, equality, range, and a pattern matched in linear time.

What can't be told, such as a range of a text, holds for rules that restrict and for none that allows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from fumehood_server.model.policy import Condition, Scalar
from fumehood_server.model.schema import compile_schema
from fumehood_server.validation.pointer_values import MAX_TEXT_CHARS, UNTOLD, pointer_parts, values_at

_Test = Callable[[Any], bool | None]
"""Of one value. None: it can't be told."""


class CompiledCondition:
    """One condition, ready to be tried."""

    __slots__ = ("_parts", "_tests")

    def __init__(self, condition: Condition) -> None:
        """The condition's pattern is one that the linear engine takes."""
        self._parts = pointer_parts(condition.pointer)
        self._tests: list[_Test] = []
        if condition.equals:
            self._tests.append(_equals(condition.equals))
        if condition.min is not None or condition.max is not None:
            self._tests.append(_within(condition.min, condition.max))
        if condition.pattern:
            self._tests.append(_matches(condition.pattern))

    def holds(self, arguments: Any, *, restricts: bool) -> bool:  # noqa: ANN401 - any JSON value
        """Whether it does, of any value that is found where the rule restricts, and else of each. Of none, never."""
        found = 0
        for value in values_at(arguments, self._parts):
            found += 1
            said = None if value is UNTOLD else self._test(value)
            if restricts and said is not False:
                return True
            if not restricts and said is not True:
                return False
        return found > 0 and not restricts

    def _test(self, value: Any) -> bool | None:  # noqa: ANN401 - likewise
        said: bool | None = True
        for test in self._tests:
            one = test(value)
            if one is False:
                return False
            said = said and one
        return said


def kind_of(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """What `equals` tells apart: a value is compared with those of its own kind."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def normal(value: Any) -> Any:  # noqa: ANN401 - likewise
    """A text as Unicode's normal form C has it, where it is not too long to be told."""
    if isinstance(value, str) and not value.isascii() and len(value) <= MAX_TEXT_CHARS:
        return unicodedata.normalize("NFC", value)
    return value


def _equals(wanted: Sequence[Scalar]) -> _Test:
    # True and 1 are equal in Python, and not in JSON.
    known = frozenset((kind_of(each), each) for each in wanted)
    alike = frozenset((kind_of(each), normal(each)) for each in wanted)
    kinds = frozenset(kind_of(each) for each in wanted)

    def test(value: Any) -> bool | None:  # noqa: ANN401 - likewise
        kind = kind_of(value)
        if value is None or kind in kinds:
            if value is None or (kind, value) in known:
                return value is not None
            return None if (kind, normal(value)) in alike else False
        return None  # a tool may well read "5" as 5, and ["x"] as "x"

    return test


def _within(least: float | None, most: float | None) -> _Test:
    def test(value: Any) -> bool | None:  # noqa: ANN401 - likewise
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return (least is None or value >= least) and (most is None or value <= most)

    return test


def _matches(pattern: str) -> _Test:
    is_valid = compile_schema({"pattern": pattern}).is_valid
    return lambda value: is_valid(value) if isinstance(value, str) and len(value) <= MAX_TEXT_CHARS else None
