"""Checks the argument template of a `cli` tool against the tool's input schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from fumehood_server.catalog.definitions import FieldProblem
from fumehood_server.catalog.nearest import nearest

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SHAPE = 'an element is a string or {if = "NAME", args = [...]}'


def check_template(argv: Sequence[object], input_schema_json: str) -> tuple[FieldProblem, ...]:
    """What is wrong with a template: elements of another shape, and placeholders that are no property of the schema."""
    properties = list(json.loads(input_schema_json).get("properties", {}))
    problems: list[FieldProblem] = []
    for place, element in _elements(argv, problems):
        names = [element[1]] if isinstance(element, tuple) else _PLACEHOLDER.findall(element)
        problems.extend(
            FieldProblem(place, f'"{name}" is not a property of the input schema', nearest(name, properties))
            for name in names
            if name not in properties
        )
    return tuple(problems)


def _elements(argv: Sequence[object], problems: list[FieldProblem]) -> Iterator[tuple[str, str | tuple[str, str]]]:
    """Every string of the template with its place; the name after an `if` comes as ("if", NAME)."""
    for index, element in enumerate(argv):
        place = f"argv.{index}"
        if isinstance(element, str):
            yield place, element
        elif isinstance(element, dict) and element.keys() == {"if", "args"} and isinstance(element["if"], str):
            yield place, ("if", element["if"])
            arguments = element["args"]
            if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
                problems.append(FieldProblem(place, "`args` must be an array of strings", _SHAPE))
                continue
            yield from ((place, each) for each in arguments)
        else:
            problems.append(FieldProblem(place, "is not an element of a template", _SHAPE))
