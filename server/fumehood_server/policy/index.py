"""Index of rules by a test of one argument each: which of a thousand may speak of a call, without trying them all.

A rule is filed under the first of its tests whose pointer leads to one value. By a call's value there are found: of
equalities those that are equal, of ranges those whose bound it is beyond, of patterns those of a group of which any one
is found in it. Whatever may hold is found; what is found is tried.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import jsonschema_rs

from fumehood_server.model.policy import Condition
from fumehood_server.model.schema import compile_schema
from fumehood_server.policy.conditions import kind_of, normal
from fumehood_server.validation.pointer_values import MAX_TEXT_CHARS, UNTOLD, is_plain, pointer_parts, value_at

GROUP_PATTERNS = 64
"""That are matched as one. More of them would take an automaton that is built anew again and again."""


class Filed(Protocol):
    """What is filed: a rule, compiled."""

    @property
    def conditions(self) -> Sequence[Condition]:
        """Its tests, all of which must hold."""


_Rule = TypeVar("_Rule", bound=Filed)


class PatternGroups(Generic[_Rule]):
    """Patterns of rules, compiled by groups. Takes long for many: not for the event loop."""

    def __init__(self, rules: Iterable[_Rule], kind_of: Callable[[_Rule], object]) -> None:
        """Rules of one group are of one kind, so that whoever has one of them has all."""
        kinds: dict[tuple[object, str], list[_Rule]] = {}
        for rule in rules:
            guard = _guard(rule)
            if guard is not None and guard.pattern and not guard.equals:
                kinds.setdefault((kind_of(rule), guard.pointer), []).append(rule)
        self.group_of: dict[int, _Group[_Rule]] = {}
        """By the identity of a rule."""
        for some in kinds.values():
            for start in range(0, len(some), GROUP_PATTERNS):
                group = _Group(some[start : start + GROUP_PATTERNS])
                self.group_of |= {id(each): group for each in group.rules}


class _Group(Generic[_Rule]):
    def __init__(self, rules: Sequence[_Rule]) -> None:
        self.rules = rules
        patterns = [guard.pattern for rule in rules if (guard := _guard(rule)) is not None]
        self._any: Callable[[Any], bool] | None = None
        try:
            self._any = compile_schema({"pattern": "|".join(f"(?:{each})" for each in patterns)}).is_valid
        except (jsonschema_rs.ValidationError, ValueError):
            return  # too large as one: each is tried

    def may_hold(self, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        if self._any is None or not isinstance(value, str) or len(value) > MAX_TEXT_CHARS:
            return True
        return self._any(value)


class RuleIndex(Generic[_Rule]):
    """The rules of one tool, in an order that is kept."""

    def __init__(self, rules: Sequence[_Rule], groups: PatternGroups[_Rule]) -> None:
        """`groups` has them all."""
        self._rules = rules
        self._unfiled: list[int] = []
        self._pointers: dict[str, _OfPointer[_Rule]] = {}
        for place, rule in enumerate(rules):
            guard = _guard(rule)
            if guard is None:
                self._unfiled.append(place)
                continue
            of_pointer = self._pointers.get(guard.pointer)
            if of_pointer is None:
                of_pointer = self._pointers[guard.pointer] = _OfPointer(guard.pointer)
            of_pointer.add(place, rule, guard, groups)
        for each in self._pointers.values():
            each.close()

    def found(self, arguments: Any) -> Iterator[_Rule]:  # noqa: ANN401 - any JSON value
        """Those that may speak of a call with these arguments, in order."""
        places = self._unfiled.copy()
        for each in self._pointers.values():
            places += each.found(arguments)
        places.sort()
        return map(self._rules.__getitem__, places)


class _OfPointer(Generic[_Rule]):
    def __init__(self, pointer: str) -> None:
        self._parts = pointer_parts(pointer)
        self._present: list[int] = []
        self._all: list[int] = []
        self._equals: dict[tuple[str, object], list[int]] = {}
        self._of_kinds: dict[frozenset[str], list[int]] = {}
        """Rules with `equals` by the kinds of what they compare with: of another kind, it can't be told."""
        self._least: list[tuple[float, int]] = []
        self._most: list[tuple[float, int]] = []
        self._groups: dict[int, tuple[_Group[_Rule], list[int]]] = {}

    def add(self, place: int, rule: _Rule, guard: Condition, groups: PatternGroups[_Rule]) -> None:
        self._all.append(place)
        if guard.equals:
            for each in {(kind_of(value), normal(value)) for value in guard.equals}:
                self._equals.setdefault(each, []).append(place)
            self._of_kinds.setdefault(frozenset(map(kind_of, guard.equals)), []).append(place)
        elif guard.pattern:
            group = groups.group_of[id(rule)]
            self._groups.setdefault(id(group), (group, []))[1].append(place)
        elif guard.min is not None:
            self._least.append((guard.min, place))
        elif guard.max is not None:
            self._most.append((guard.max, place))
        else:
            self._present.append(place)

    def close(self) -> None:
        self._least.sort()
        self._most.sort()

    def found(self, arguments: Any) -> Iterator[int]:  # noqa: ANN401 - any JSON value
        is_there, value = value_at(arguments, self._parts)
        if not is_there:
            return
        if value is UNTOLD:
            yield from self._all
            return
        yield from self._present
        kind = kind_of(value)
        if kind != "other":
            yield from self._equals.get((kind, normal(value)), ())
        for kinds, places in self._of_kinds.items():
            if value is not None and kind not in kinds:
                yield from places
        for group, places in self._groups.values():
            if group.may_hold(value):
                yield from places
        least, most = self._least, self._most
        if isinstance(value, int | float) and not isinstance(value, bool):  # else it can't be told
            least = least[: bisect_right(least, value, key=_bound)]
            most = most[bisect_left(most, value, key=_bound) :]
        for _, place in (*least, *most):
            yield place


def _bound(entry: tuple[float, int]) -> float:
    return entry[0]


def _guard(rule: Filed) -> Condition | None:
    """The test that the rule is filed under. None: it is always tried."""
    return next((each for each in rule.conditions if is_plain(each.pointer)), None)
