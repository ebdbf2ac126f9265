"""Worst-case cost of validation: how many subschemas visit one value, by its depth in the document.

Schemas and documents are untrusted. A few lines of references, each to two others, visit one value 2^40 times, and
validation runs on the event loop that serves every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from fumehood_server.model.pattern_cost import building_states, find_patterns, pattern_states

MAX_DEPTH = 64
"""Documents nest no deeper."""

CEILING = 1 << 40
"""Counts saturate here: more is refused alike."""

MAX_SUBSCHEMAS = 5_000
"""A schema with more is refused: it is generated, and could be generated smaller."""

_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME = ("not", "if", "then", "else")
_BELOW = ("additionalProperties", "propertyNames", "unevaluatedProperties", "items", "contains", "unevaluatedItems")
_REFERENCES = ("$ref", "$dynamicRef")
_MAPS = frozenset({"dependentSchemas", "patternProperties", "properties", "$defs", "definitions"})
_LISTS = frozenset({*_SAME_LISTS, "prefixItems"})
_MAKES_NO_ERRORS = frozenset(
    {*_MAPS, *_REFERENCES, "allOf", "prefixItems", "if", "then", "else", "type", "required", "dependentRequired"}
    | {"title", "description", "default", "examples", "$comment", "$schema", "$id", "$anchor", "$dynamicAnchor"}
)
"""Keywords that make no errors, or whose errors are those of other subschemas or counted by name; and `type`, beside
which no rule about values of that type can be broken."""
_SIMPLE_CHOICES_A_VISIT = 16
"""An error about an `enum` takes 0.2 µs for each choice that it names; MAX_ERROR_VISITS allows 12 µs a visit."""
_NAMES_ERRORS = 1_000
"""Assumed errors of `propertyNames`, each of which copies the whole object: its keys aren't known yet."""
_UNKNOWN = -1
_UNDER_WAY = -1


class SchemaTooLargeError(ValueError):
    """A schema has more than `MAX_SUBSCHEMAS` subschemas."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A subschema by what it applies: to the value itself, and to each value directly below it."""

    same: tuple[int, ...]
    below: tuple[int, ...]
    """Each may apply to one value below."""
    one_of: tuple[int, ...]
    """At most one of these applies to one value below: `properties`, whose names differ, and `prefixItems`."""
    weight: int
    """How many visits its own keywords cost."""
    errors: int
    """How many errors its own keywords can make of one value."""
    patterns: int
    """States of the patterns that it matches against the value, or the names in it."""


def visits(schema: Mapping[str, Any]) -> tuple[int, ...]:
    """Upper bounds, by depth from 0, on how many subschemas visit one value. The last holds for all greater depths.

    The choices of an `enum` count as visits: values by size where they are compared one by one, few where they are not.

    `CEILING` stands for a schema that refers to itself without going deeper, and for a reference that is neither a JSON
    pointer to a subschema nor an anchor.

    Raises:
        SchemaTooLargeError: there are too many subschemas to tell.
    """
    nodes = _nodes(schema)
    return _by_depth(nodes, [each.weight for each in nodes])


def error_counts(schema: Mapping[str, Any]) -> tuple[int, ...]:
    """Upper bounds, by depth from 0, on how many errors one value can have. The last holds for all greater depths.

    Each error holds a copy of its value, and all are made before the first can be read.

    Raises:
        SchemaTooLargeError: there are too many subschemas to tell.
    """
    nodes = _nodes(schema)
    return _by_depth(nodes, [each.errors for each in nodes])


@dataclass(frozen=True, slots=True)
class PatternCost:
    """What the regular expressions of a schema cost, in states of their automata."""

    all_states: int
    """To build them: a microsecond each at most."""
    visiting_states: int
    """Most that visit one value: for each of its characters some 40 ns at worst."""


def pattern_cost(schema: Mapping[str, Any]) -> PatternCost:
    """The cost of a schema's patterns.

    Raises:
        SchemaTooLargeError: there are too many subschemas to tell.
    """
    nodes = _nodes(schema)
    states = [each.patterns for each in nodes]
    building = sum(map(building_states, find_patterns(schema)))
    return PatternCost(building, max(_by_depth(nodes, states)) if any(states) else 0)


def _by_depth(nodes: list[_Node], weights: list[int]) -> tuple[int, ...]:
    """The total weight of the subschemas that visit one value, for each depth."""
    rounds = [_spread(nodes, weights)]
    for _ in range(MAX_DEPTH):
        last = rounds[-1]
        local = [sum(last[i] for i in each.below) + max((last[i] for i in each.one_of), default=0) for each in nodes]
        counts = _spread(nodes, local)
        if counts == last:
            break
        rounds.append(counts)
    return tuple(each[0] for each in rounds)


def _spread(nodes: list[_Node], local: list[int]) -> list[int]:
    """For each node, what it and everything that it applies to the same value count together."""
    total: list[int | None] = [None] * len(nodes)
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            at = stack[-1]
            if total[at] is None:
                total[at] = _UNDER_WAY
                stack += [i for i in nodes[at].same if i != _UNKNOWN and total[i] is None]
                continue
            stack.pop()
            if total[at] == _UNDER_WAY:
                total[at] = min(local[at] + sum(_counted(total, i) for i in nodes[at].same), CEILING)
    return [count or 0 for count in total]


def _counted(total: list[int | None], index: int) -> int:
    count = None if index == _UNKNOWN else total[index]
    return CEILING if count is None or count == _UNDER_WAY else count


def _nodes(schema: Mapping[str, Any]) -> list[_Node]:
    """Every subschema, the whole first."""
    places: dict[str, int] = {}
    found: list[tuple[str, Mapping[str, Any]]] = []
    pending: deque[tuple[str, Any]] = deque([("", schema)])
    while pending:
        place, each = pending.popleft()
        if len(found) == MAX_SUBSCHEMAS:
            raise SchemaTooLargeError(f"has more than {MAX_SUBSCHEMAS} subschemas")
        places[place] = len(found)
        found.append((place, each if isinstance(each, dict) else {}))
        if isinstance(each, dict):
            for anchor in ("$anchor", "$dynamicAnchor"):
                places.setdefault(f"#{each.get(anchor)}", len(found) - 1)
            pending.extend(_subschemas(place, each))
    return [_node(place, each, places) for place, each in found]


def _subschemas(place: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        if keyword in _MAPS and isinstance(value, dict):
            yield from ((f"{place}/{keyword}/{_escaped(name)}", each) for name, each in value.items())
        elif keyword in _LISTS and isinstance(value, list):
            yield from ((f"{place}/{keyword}/{number}", each) for number, each in enumerate(value))
        elif keyword in _SAME or keyword in _BELOW:
            yield f"{place}/{keyword}", value


def _node(place: str, schema: Mapping[str, Any], places: Mapping[str, int]) -> _Node:
    at: dict[str, list[int]] = {}
    for below, _ in _subschemas(place, schema):
        at.setdefault(below[len(place) + 1 :].split("/", 1)[0], []).append(places[below])

    def under(*keywords: str) -> Iterator[int]:
        return (index for keyword in keywords for index in at.get(keyword, ()))

    references = (_target(schema[each], places) for each in _REFERENCES if each in schema)
    return _Node(
        same=(*under(*_SAME, *_SAME_LISTS, "dependentSchemas"), *references),
        below=tuple(under(*_BELOW, "patternProperties")),
        one_of=tuple(under("properties", "prefixItems")),
        weight=1 + _choices_weight([*_listed(schema.get("enum")), schema.get("const")]),
        errors=_errors(schema),
        patterns=_pattern_states(schema),
    )


def _pattern_states(schema: Mapping[str, Any]) -> int:
    names = schema.get("patternProperties")
    patterns = [schema.get("pattern"), *(names if isinstance(names, dict) else ())]
    return sum(pattern_states(each) for each in patterns if isinstance(each, str))


def _errors(schema: Mapping[str, Any]) -> int:
    """One for each keyword, at least one, and one for each name that is asked for."""
    dependent = schema.get("dependentRequired")
    lists = [schema.get("required"), *(dependent.values() if isinstance(dependent, dict) else ())]
    names = _NAMES_ERRORS if "propertyNames" in schema else 0
    return (
        max(1, sum(each not in _MAKES_NO_ERRORS for each in schema)) + sum(len(_listed(each)) for each in lists) + names
    )


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


def _target(reference: object, places: Mapping[str, int]) -> int:
    if not isinstance(reference, str):
        return _UNKNOWN
    reference = unquote(reference)
    return places.get(reference[1:] if reference == "#" or reference.startswith("#/") else reference, _UNKNOWN)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
