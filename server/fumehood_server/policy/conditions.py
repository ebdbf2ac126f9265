"""Tests of a call's arguments: JSON pointer, equality, range, and a pattern matched in linear time.

What can't be told, such as a range of a text, holds for rules that restrict and for none that allows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fumehood_server.model.policy import Condition, Scalar
from fumehood_server.model.schema import compile_schema

MAX_VALUES = 1_000
"""That one pointer may look at, found or not. The event loop waits for each."""
MAX_TEXT_CHARS = 16_384
"""Of a text that is matched by a pattern."""
_INDEX = re.compile("0|[1-9][0-9]*")
"""RFC 6901, section 4."""
_INDEX_DIGITS = 9

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
        for value in _values(arguments, self._parts, _Budget(MAX_VALUES)):
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


def pointer_parts(pointer: str) -> tuple[str, ...]:
    """The reference tokens of a JSON pointer (RFC 6901, section 4)."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def is_plain(pointer: str) -> bool:
    """Whether it leads to one value, if to any."""
    return "*" not in pointer_parts(pointer)


def value_at(value: Any, parts: Sequence[str]) -> tuple[bool, Any]:  # noqa: ANN401 - any JSON value
    """Whether there is a value, and which. For a plain pointer."""
    for each in _values(value, parts, _Budget(1)):
        return True, each
    return False, None


class _Budget:
    """How many more elements a pointer may look at."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


UNTOLD = object()
"""Stands for what a pointer can't tell: what it did not look at any more, or a value of a shape that it can't enter."""


def _values(value: Any, parts: Sequence[str], budget: _Budget) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
    """What the pointer finds; at the end of the budget `UNTOLD`, once.

    A name of a list's element, or an element of a text, is `UNTOLD` too: a tool that takes both shapes reads the value
    all the same. A member that isn't there, an element beyond the list's end and what is in a null are not found.
    """
    for place, part in enumerate(parts):
        if part == "*" and isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                if budget.left <= 0:
                    if budget.left == 0:
                        yield UNTOLD
                    budget.left = -1
                    return
                budget.left -= 1
                yield from _values(each, parts[place + 1 :], budget)
            return
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.fullmatch(part):
            if len(part) > _INDEX_DIGITS or int(part) >= len(value):
                return
            value = value[int(part)]
        else:
            if value is not None and not isinstance(value, dict):
                yield UNTOLD
            return
    yield value


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
