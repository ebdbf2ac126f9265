"""Tests of a call's arguments: JSON pointer, equality, range, and a pattern matched in linear time.

What can't be told, such as a range of a text, holds for rules that restrict and for none that allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fumehood_server.model.policy import Condition, Scalar
from fumehood_server.model.schema import compile_schema

MAX_VALUES = 1_000
"""That one pointer may look at, found or not. The event loop waits for each."""
MAX_TEXT_CHARS = 16_384
"""Of a text that is matched by a pattern."""

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
            said = None if value is _TOO_MANY else self._test(value)
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


_TOO_MANY = object()
"""Stands for all that a pointer did not look at any more."""


def _values(value: Any, parts: Sequence[str], budget: _Budget) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
    """What the pointer finds; at the end of the budget `_TOO_MANY`, once."""
    for place, part in enumerate(parts):
        if part == "*" and isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                if budget.left <= 0:
                    if budget.left == 0:
                        yield _TOO_MANY
                    budget.left = -1
                    return
                budget.left -= 1
                yield from _values(each, parts[place + 1 :], budget)
            return
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return
    yield value


def _equals(wanted: Sequence[Scalar]) -> _Test:
    # True and 1 are equal in Python, and not in JSON.
    known = frozenset((isinstance(each, bool), each) for each in wanted)
    return lambda value: (isinstance(value, bool), value) in known if not isinstance(value, dict | list) else False


def _within(least: float | None, most: float | None) -> _Test:
    def test(value: Any) -> bool | None:  # noqa: ANN401 - likewise
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return (least is None or value >= least) and (most is None or value <= most)

    return test


def _matches(pattern: str) -> _Test:
    is_valid = compile_schema({"pattern": pattern}).is_valid
    return lambda value: is_valid(value) if isinstance(value, str) and len(value) <= MAX_TEXT_CHARS else None
