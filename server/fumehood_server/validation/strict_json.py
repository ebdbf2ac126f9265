"""Reads the arguments' text more strictly than JSON readers do.

Two readers that disagree about one text are a hole: what was validated here must be what the plugin reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from fumehood_server.model.json_keys import first_duplicate

MAX_DEPTH = 64
"""Nesting of arguments and results. Every reader of JSON behind us recurses."""


class JsonError(ValueError):
    """The text can't be taken. `problem` says why."""

    def __init__(self, problem: str) -> None:
        """Keep the reason."""
        super().__init__(problem)
        self.problem = problem


def parse_object(text: str) -> dict[str, Any]:
    """One JSON object (RFC 8259): no duplicate keys, no NaN or Infinity, no lone surrogates, at most `MAX_DEPTH` deep.

    Integers beyond 64 bits come back as floats; the text itself is what is handed on.

    Raises:
        JsonError: the text is something else.
    """
    value = parse(text)
    if type(value) is not dict:
        raise JsonError(f"must be one JSON object, not {_name(value)}")
    return value


def parse(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """One JSON value, as strictly as `parse_object`.

    Raises:
        JsonError: the text is something else.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise JsonError(f"is not JSON: {exc.msg} at character {exc.pos}") from None
    objects = text.count("{")
    # Brackets and colons within strings only make the slow path more frequent, never the answer wrong: there are at
    # least as many in the text as the structure has.
    if objects + text.count("[") > MAX_DEPTH or objects > 1 or type(value) is not dict:
        keys, depth = _measure(value)
        if depth > MAX_DEPTH:
            raise JsonError(f"is nested deeper than {MAX_DEPTH} levels")
    else:
        keys = len(value)
    if text.count(":") != keys:
        _refuse_duplicates(text)
    return value


def parse_exact(text: str) -> dict[str, Any]:
    """The same object again with integers of any size kept. For a text that `parse_object` has taken."""
    value: dict[str, Any] = json.loads(text)
    return value


@dataclass(frozen=True, slots=True)
class Size:
    """How large a document is."""

    values: int
    """Of any kind, the document itself among them."""
    depth: int
    """Containers around the deepest value."""


def measure(value: object) -> Size:
    """Count a parsed document's values, level by level."""
    values, depth = 1, 0
    level: list[Any] = [value] if type(value) in (dict, list) else []
    while level:
        depth += 1
        below: list[Any] = []
        for each in level:
            children = each.values() if type(each) is dict else each
            values += len(each)
            below += [child for child in children if type(child) is dict or type(child) is list]
        level = below
    return Size(values, depth)


def _measure(value: Any) -> tuple[int, int]:  # noqa: ANN401 - any JSON value
    """Number of keys of all objects, and the depth, level by level: no recursion that hostile input could drive."""
    keys = depth = 0
    level = [value] if type(value) in (dict, list) else []
    while level and depth <= MAX_DEPTH:
        depth += 1
        below: list[Any] = []
        for each in level:
            if type(each) is dict:
                keys += len(each)
                below += [child for child in each.values() if type(child) is dict or type(child) is list]
            else:
                below += [child for child in each if type(child) is dict or type(child) is list]
        level = below
    return keys, depth + bool(level)


def _refuse_duplicates(text: str) -> None:
    json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    twice = first_duplicate(pairs)
    if twice is not None:
        raise JsonError(f'has the key "{twice[:64]}" twice in one object')


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"is not JSON: {name} is no JSON number")


def _name(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", str: "a string", list: "an array"}.get(type(value), "a number")
