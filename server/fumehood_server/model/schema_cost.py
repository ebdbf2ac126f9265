"""Worst-case cost of validation: how many subschemas visit one value, by its depth in the document.

Schemas and documents are untrusted. A few lines of references, each to two others, visit one value 2^40 times, and
validation runs on the event loop that serves every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fumehood_server.model.pattern_cost import PatternCost, pattern_costs
from fumehood_server.model.schema_graph import UNKNOWN, SchemaCostError, subschemas

MAX_DEPTH = 64
"""Documents nest no deeper."""

CEILING = 1 << 40
"""Counts saturate here: more is refused alike."""

MAX_MARKED = 2_000
"""Subschemas that `unevaluatedProperties` and `unevaluatedItems` follow, by each way that leads to one: the engine
builds them anew for each, 3 µs each."""

MAX_FRACTIONS = 500
"""Fractions as `multipleOf`, each of which takes up to 40 µs to compile."""

LEAST_LEVELS = 5
"""Depths that are always told apart."""
MANY_STEPS = 1_000_000

_MAKES_NO_ERRORS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions", "contentSchema"}
    | {"allOf", "prefixItems", "if", "then", "else", "$ref", "$dynamicRef", "type", "required", "dependentRequired"}
    | {"title", "description", "default", "examples", "$comment", "$schema", "$id", "$anchor", "$dynamicAnchor"}
)
"""Keywords that make no errors, or whose errors are those of other subschemas or counted by name; and `type`, beside
which no rule about values of that type can be broken."""
_SIMPLE_CHOICES_A_VISIT = 16
"""An error about an `enum` takes 0.2 µs for each choice that it names; MAX_ERROR_VISITS allows 12 µs a visit."""
_NAMES_ERRORS = 1_000
"""Assumed errors of `propertyNames`, each of which copies the whole object: its keys aren't known yet."""


@dataclass(frozen=True, slots=True)
class SchemaCost:
    """What asking a schema can cost. What is counted by depth is an upper bound; the last holds for all below."""

    visits: tuple[int, ...]
    """How many subschemas visit one value, by its depth.

    The choices of an `enum` count as visits: values by size where they are compared one by one, few where they are not.
    """
    error_counts: tuple[int, ...]
    """How many errors one value can have, by its depth. Each holds a copy of its value, and all are made before the
    first can be read."""
    visiting_states: int
    """Most states of patterns that visit one value: for each of its characters some 40 ns at worst."""
    multiples: int
    """`multipleOf` that visit one value: some 5 µs each, 50 µs for numbers that need a hundred digits."""


class CostlyPatternsError(SchemaCostError):
    """The patterns of a schema take more to build than was to be."""


def schema_cost(schema: Mapping[str, Any], *, most_states: int = CEILING, steps: int = MANY_STEPS) -> SchemaCost:
    """The cost of a schema. Counting takes some microseconds for each subschema, and one or less for each of `steps`.

    `CEILING` stands for a schema that refers to itself without going deeper, and for depths that are beyond `steps`.

    Raises:
        CostlyPatternsError: building its patterns takes more than `most_states`.
        SchemaCostError: it can't be told, or is too much whatever the document.
    """
    patterns = pattern_costs(schema, most_states)
    if patterns is None:
        raise CostlyPatternsError(f"has patterns that take more than {most_states} states together", "")
    counting = _Counting(schema, steps)
    return SchemaCost(
        visits=counting.by_depth(counting.each(_weight)),
        error_counts=counting.by_depth(counting.each(_errors)),
        visiting_states=counting.most(counting.each(lambda each: _visiting_states(each, patterns))) if patterns else 0,
        multiples=counting.most(counting.each(_multiples)),
    )


def visits(schema: Mapping[str, Any], *, steps: int = MANY_STEPS) -> tuple[int, ...]:
    """`SchemaCost.visits` alone.

    Raises:
        SchemaCostError: it can't be told, or is too much whatever the document.
    """
    counting = _Counting(schema, steps)
    return counting.by_depth(counting.each(_weight))


def may_be_costly(canonical: str) -> bool:
    """Whether a schema is to be counted. Else each subschema visits a value once, and has some characters."""
    return any(each in canonical for each in ('"$ref"', 'Ref"', '"unevaluated', '"multipleOf"'))


class _Counting:
    """Adds weights of subschemas up, by the depth of the values that they look at."""

    def __init__(self, schema: Mapping[str, Any], steps: int) -> None:
        self._nodes = subschemas(schema)
        self._same = [tuple(node.same) for node in self._nodes]
        self._marks = [node.marks for node in self._nodes]
        self._order = _sorted(self._same)
        """Each after those that look at the same value on its behalf."""
        self._inner = [i for i in self._order if self._same[i] or self._nodes[i].below or self._nodes[i].one_of]
        edges = sum(len(each.same) + len(each.below) + len(each.one_of) for each in self._nodes)
        self._levels = min(MAX_DEPTH, max(LEAST_LEVELS, steps // (len(self._inner) + edges + 1)))
        self._any_marks = any(self._marks)
        if self._any_marks:
            self._refuse_many_marked()
        if sum(isinstance(node.schema.get("multipleOf"), float) for node in self._nodes) > MAX_FRACTIONS:
            raise SchemaCostError(f"has more than {MAX_FRACTIONS} fractions as multipleOf", "refer to one by $ref")

    def each(self, weigh: Callable[[Mapping[str, Any]], int]) -> list[int]:
        """The weight of each subschema."""
        return [weigh(node.schema) for node in self._nodes]

    def by_depth(self, local: list[int]) -> tuple[int, ...]:
        """The total weight of the subschemas that look at one value, for each depth."""
        nodes = self._nodes
        last = self._spread(local, self._order)
        found = [last[0]]
        local = [0] * len(nodes)
        for _ in range(self._levels):
            for i in self._inner:
                node = nodes[i]
                local[i] = sum([last[each] for each in node.below]) if node.below else 0
                local[i] += max([last[each] for each in node.one_of]) if node.one_of else 0
            totals = self._spread(local, self._inner)
            if totals == last:
                break
            found.append(totals[0])
            last = totals
        else:
            if self._levels < MAX_DEPTH:
                found.append(CEILING)
        return tuple(found)

    def most(self, local: list[int]) -> int:
        """The highest of `by_depth`."""
        return max(self.by_depth(local)) if any(local) else 0

    def _spread(self, local: Sequence[int], order: Sequence[int]) -> list[int]:
        """For each, what it and all that look at the same value on its behalf weigh together.

        Where it marks what was evaluated, it asks them once more, and each of those that they ask, one by one.
        """
        totals = [*local, CEILING]  # the last is where UNKNOWN points
        marked = [*totals] if self._any_marks else totals
        for i in order:
            if not (same := self._same[i]):
                continue
            once = min(local[i] + sum([totals[each] for each in same]), CEILING)
            totals[i] = once
            if self._any_marks:
                marked[i] = min(once + sum([marked[each] for each in same]), CEILING)
                totals[i] = min(once + marked[i], CEILING) if self._marks[i] else once
        return totals

    def _refuse_many_marked(self) -> None:
        ways = [1] * len(self._nodes) + [CEILING]
        for i in self._inner:
            ways[i] = min(1 + sum(ways[each] for each in self._same[i]), CEILING)
        if sum(count for count, marks in zip(ways, self._marks, strict=False) if marks) > MAX_MARKED:
            raise SchemaCostError(
                f"has unevaluatedProperties or unevaluatedItems over more than {MAX_MARKED} subschemas",
                "name the properties in one place, with additionalProperties, or refer to each from fewer places",
            )


def _sorted(same: list[tuple[int, ...]]) -> list[int]:
    """All, each after those that it leads to. What leads back is made `UNKNOWN` in `same`."""
    new, under_way, done = 0, 1, 2
    state = bytearray(len(same))
    order: list[int] = []
    for root in range(len(same)):
        stack = [root]
        while stack:
            at = stack[-1]
            if state[at] == new:
                state[at] = under_way
                stack += [each for each in same[at] if each != UNKNOWN and state[each] == new]
                continue
            stack.pop()
            if state[at] == under_way:
                same[at] = tuple(each if each != UNKNOWN and state[each] == done else UNKNOWN for each in same[at])
                state[at] = done
                order.append(at)
    return order


def _weight(schema: Mapping[str, Any]) -> int:
    """How many visits a subschema's own keywords cost."""
    weight = 1
    if "enum" in schema or "const" in schema:
        weight += _choices_weight([*_listed(schema.get("enum")), schema.get("const")])
    if isinstance(names := schema.get("dependentRequired"), dict):  # each is looked for
        weight += len(names)
    return weight


def _multiples(schema: Mapping[str, Any]) -> int:
    return 1 if "multipleOf" in schema else 0


def _visiting_states(schema: Mapping[str, Any], patterns: Mapping[str, PatternCost]) -> int:
    """States of the patterns that are matched against the value, or the names in it."""
    names = schema.get("patternProperties")
    matched = [schema.get("pattern"), *(names if isinstance(names, dict) else ())]
    return sum(patterns[each].states for each in matched if isinstance(each, str))


def _errors(schema: Mapping[str, Any]) -> int:
    """One for each keyword, at least one, and one for each name that is asked for."""
    errors = max(1, sum(each not in _MAKES_NO_ERRORS for each in schema)) + len(_listed(schema.get("required")))
    for keyword in ("dependentRequired", "dependencies"):
        if isinstance(names := schema.get(keyword), dict):
            errors += sum(len(_listed(each)) for each in names.values())
    return errors + (_NAMES_ERRORS if "propertyNames" in schema else 0)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _choices_weight(choices: list[Any]) -> int:
    """Scalars are looked up, though each is written into errors; objects and arrays are compared one by one."""
    simple = compared = 0
    pending = [(choice, False) for choice in choices]
    while pending:
        each, within = pending.pop()
        if isinstance(each, dict | list):
            compared += 1
            pending += [(below, True) for below in (each.values() if isinstance(each, dict) else each)]
        elif within:
            compared += 1
        else:
            simple += 1
    return compared + simple // _SIMPLE_CHOICES_A_VISIT
