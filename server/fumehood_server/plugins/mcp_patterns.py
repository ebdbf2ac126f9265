r"""Patterns of MCP servers' schemas that can't be matched here: left to the server, which checks its arguments itself.

Many servers have some: Zod wrote look-ahead for e-mail addresses. One is left out only where that lets more through
and refuses nothing, and stays in its schema as `UNCHECKED`, an annotation, for whoever reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema_rs

from fumehood_server.model.json_pointer import escaped
from fumehood_server.model.pattern_cost import building_states, find_patterns
from fumehood_server.model.schema import (
    MAX_PATTERN_STATES,
    SchemaError,
    canonical_json,
    canonical_schema,
    compile_schema,
)
from fumehood_server.model.tool import ToolDefinition
from fumehood_server.plugins.definitions import RawDefinition

UNCHECKED = "x-unchecked-pattern"
"""Holds a pattern in place of `pattern`."""

# Keywords that let more through where one of their subschemas does: they hold one, an array of them, or some by name.
_HOLD_ONE = frozenset(
    {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames", "then", "else"}
)
_HOLD_ARRAY = frozenset({"allOf", "anyOf", "prefixItems"})
_HOLD_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_MAY_BE_STRICTER = frozenset({"not", "if", "oneOf", "contains", "dependencies"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def with_unchecked_patterns(raw: RawDefinition) -> RawDefinition:
    """The definition, in whose schemas patterns that can't be matched here are left to the server where they may be."""
    return replace(
        raw, input_schema_json=_relaxed(raw.input_schema_json), output_schema_json=_relaxed(raw.output_schema_json)
    )


def unchecked_patterns(tool: ToolDefinition) -> list[str]:
    """Where the schemas of a definition have patterns that are left to the server, each as a JSON pointer."""
    found: list[str] = []
    for text in (tool.input_schema_json, tool.output_schema_json):
        if UNCHECKED in text:
            found += [pointer for each, pointer in _subschemas(json.loads(text)) if UNCHECKED in each]
    return found


def _relaxed(text: str) -> str:
    if not text:
        return text
    try:
        schema = json.loads(canonical_schema(text))
    except SchemaError:
        return text  # as whoever checks it will say
    if _refers_from_strictness(schema):
        return text
    places = [each for each, _ in _subschemas(schema) if isinstance(each.get("pattern"), str)]
    unusable = _unusable({each["pattern"] for each in places}, find_patterns(schema))
    for each in places:
        if each["pattern"] in unusable:
            each[UNCHECKED] = each.pop("pattern")
    return canonical_json(schema) if unusable else text


def _unusable(free: set[str], patterns: set[str]) -> set[str]:
    """Which of those that may be left out can't be matched, or are too much beside the others, also to try them."""
    left = MAX_PATTERN_STATES - sum(map(building_states, patterns - free))
    unusable = set()
    states = {each: building_states(each) for each in free}
    for each in sorted(free, key=lambda pattern: (states[pattern], pattern)):
        if states[each] > left:
            unusable.add(each)
            continue
        left -= states[each]  # trying one builds it
        if not _is_linear(each):
            unusable.add(each)
    return unusable


def _is_linear(pattern: str) -> bool:
    try:
        compile_schema({"pattern": pattern})
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Those that only let more through where they do, each with its JSON pointer."""
    pending = [(schema, "")]
    while pending:
        each, pointer = pending.pop()
        yield each, pointer
        for keyword, value in each.items():
            held: Iterator[tuple[str, Any]] = iter(())
            if keyword in _HOLD_ONE:
                held = iter([(keyword, value)])
            elif keyword in _HOLD_ARRAY and isinstance(value, list):
                held = ((f"{keyword}/{index}", below) for index, below in enumerate(value))
            elif keyword in _HOLD_NAMED and isinstance(value, dict):
                held = ((f"{keyword}/{escaped(name)}", below) for name, below in value.items())
            pending += [(below, f"{pointer}/{place}") for place, below in held if isinstance(below, dict)]


def _refers_from_strictness(schema: dict[str, Any]) -> bool:
    """Whether a reference stands where letting more through may refuse something: it may lead to any subschema."""
    pending: list[tuple[Any, bool, bool]] = [(schema, False, False)]
    while pending:
        each, is_strict, is_named = pending.pop()
        if isinstance(each, list):
            pending += [(below, is_strict, False) for below in each]
        elif isinstance(each, dict) and is_named:  # its keys are names, whatever keyword they are like
            pending += [(below, is_strict, False) for below in each.values()]
        elif isinstance(each, dict):
            if is_strict and not _REFERENCES.isdisjoint(each):
                return True
            pending += [
                (below, is_strict or keyword in _MAY_BE_STRICTER, keyword in _HOLD_NAMED)
                for keyword, below in each.items()
            ]
    return False
