"""JSON Schemas and validation schemas of plain types, without pydantic.

Each builder returns what `pydantic_core` validates by and the JSON Schema, equal to what pydantic would make of the
same type. Whatever is not surely equal raises `NotPlainError`, and pydantic decides.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any

from fumehood_sdk.schema.field import (
    ARRAY_KEYWORDS,
    NOTES,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
    arguments_of,
)

Core = dict[str, Any]
"""A schema of `pydantic_core`."""
Json = dict[str, Any]
"""A JSON Schema."""
Pair = tuple[Core, Json]


class NotPlainError(Exception):
    """A type is outside of what this module covers."""


def schemas_of(annotation: Any) -> Pair:  # noqa: ANN401 - an annotation can be anything
    """Schemas of a type hint.

    Raises:
        NotPlainError: pydantic must decide.
        TypeError: a bound makes no sense for its type, which pydantic would say no sooner than in a call.
    """
    scalar = _SCALARS.get(annotation) if isinstance(annotation, typing.Hashable) else None
    if scalar is not None:
        return {"type": scalar[0]}, dict(scalar[1])
    if annotation is Any:
        return {"type": "any"}, {}
    build = _BUILDERS.get(typing.get_origin(annotation) or annotation)
    if build is None:
        raise NotPlainError
    return build(annotation)


def _list(annotation: Any) -> Pair:  # noqa: ANN401
    arguments = typing.get_args(annotation)
    if not arguments:
        return {"type": "list"}, {"items": {}, "type": "array"}
    core, json = schemas_of(arguments[0])
    return {"type": "list", "items_schema": core}, {"items": json, "type": "array"}


def _dict(annotation: Any) -> Pair:  # noqa: ANN401
    arguments = typing.get_args(annotation)
    if not arguments:
        return {"type": "dict"}, {"additionalProperties": True, "type": "object"}
    if arguments[0] is not str:
        raise NotPlainError
    core, json = schemas_of(arguments[1])
    json.pop("title", None)  # as pydantic does
    schema = {"type": "dict", "keys_schema": {"type": "str"}, "values_schema": core}
    return schema, {"additionalProperties": json or True, "type": "object"}


def _literal(annotation: Any) -> Pair:  # noqa: ANN401
    expected = list(typing.get_args(annotation))
    kinds = {type(value) for value in expected}
    if kinds not in ({str}, {int}):
        raise NotPlainError
    kind = "string" if kinds == {str} else "integer"
    json: Json = {"const": expected[0], "type": kind} if len(expected) == 1 else {"enum": expected, "type": kind}
    return {"type": "literal", "expected": expected}, json


def _union(annotation: Any) -> Pair:  # noqa: ANN401
    choices = [choice for choice in typing.get_args(annotation) if choice is not type(None)]
    nullable = len(choices) < len(typing.get_args(annotation))
    pairs = [schemas_of(choice) for choice in choices]
    if any("anyOf" in json or not json for _, json in pairs):
        raise NotPlainError
    alternatives = [json for _, json in pairs]
    core = pairs[0][0] if len(pairs) == 1 else {"type": "union", "choices": [choice for choice, _ in pairs]}
    if nullable:
        core = {"type": "nullable", "schema": core}
        alternatives.append({"type": "null"})
    return core, {"anyOf": alternatives}


def _annotated(annotation: Any) -> Pair:  # noqa: ANN401
    inner, *metadata = typing.get_args(annotation)
    core, json = schemas_of(inner)
    keywords = _KEYWORDS.get(core["type"], {})
    for entry in metadata:
        said = arguments_of(entry)
        if said is None:
            raise NotPlainError
        for name, value in said.items():
            if name in NOTES:
                json[name] = value
            elif keywords and name not in keywords:
                raise TypeError(f"{name} says nothing of a value of type {core['type']}")
            elif name not in keywords or name in core or not _fits(core["type"], name, value):
                # Two bounds of one kind, or a bound that the type can't have: pydantic knows what to do or to say.
                raise NotPlainError
            else:
                core[name] = value
                json[keywords[name]] = value
    return core, json


def _fits(kind: str, name: str, value: object) -> bool:
    """Whether a bound is of a type that its schema takes as it is."""
    if name == "pattern":
        return isinstance(value, str)
    if kind == "float" and name in NUMBER_KEYWORDS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is int


_SCALARS: dict[Any, tuple[str, Json]] = {
    int: ("int", {"type": "integer"}),
    float: ("float", {"type": "number"}),
    str: ("str", {"type": "string"}),
    bool: ("bool", {"type": "boolean"}),
    None: ("none", {"type": "null"}),
    type(None): ("none", {"type": "null"}),
}
_BUILDERS: dict[Any, Callable[[Any], Pair]] = {
    list: _list,
    dict: _dict,
    typing.Literal: _literal,
    typing.Union: _union,
    types.UnionType: _union,
    typing.Annotated: _annotated,
}
_KEYWORDS = {
    "int": NUMBER_KEYWORDS,
    "float": NUMBER_KEYWORDS,
    "str": STRING_KEYWORDS,
    "list": ARRAY_KEYWORDS,
    "dict": OBJECT_KEYWORDS,
}
