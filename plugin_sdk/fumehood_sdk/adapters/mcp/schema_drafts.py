"""Translates JSON Schemas of drafts 4 to 7 and 2019-09, by which many servers list their tools, into 2020-12.

What those drafts write otherwise: tuples, bounds that are excluded (draft 4), what one property requires of others.
See the release notes of 2019-09 and 2020-12 (json-schema.org). All else stays as it is, also what is wrong.
"""

from __future__ import annotations

import re
from typing import Any

MAX_DEPTH = 64
"""Of schemas in each other. The sidecar takes none that is nested deeper."""
_OLD_DIALECT = re.compile(r"https?://json-schema\.org/draft-0[4-7]/schema#?|https?://json-schema\.org/draft/2019-09/.*")
_SINGLE = frozenset(
    {
        *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    }
)
"""Keywords whose value is a schema. What stands under other keywords than these and those below is data."""
_LISTED = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
_NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose value is an object of schemas by names."""
_TUPLE = {"items": "prefixItems", "additionalItems": "items"}
"""What the keywords of a tuple are called now, in this order."""
_MAX_INDEX_DIGITS = 10
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))

Json = dict[str, Any]


def to_2020_12(schema: object) -> object:
    """The schema as one of 2020-12, without the name of an older dialect. One that names another stays as it is.

    In one that names none, what only older drafts have means what it meant there.
    """
    if not isinstance(schema, dict):
        return schema
    dialect = schema.get("$schema")
    if dialect is not None and not (isinstance(dialect, str) and _OLD_DIALECT.fullmatch(dialect)):
        return schema
    return _translated({key: value for key, value in schema.items() if key != "$schema"}, schema, MAX_DEPTH)


def _translated(schema: Any, root: Json, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if not isinstance(schema, dict) or depth == 0:
        return schema
    made = {key: _translated_value(key, value, root, depth - 1) for key, value in schema.items()}
    if isinstance(made.get("items"), list):
        for old, new in _TUPLE.items():
            if old in made:
                made[new] = made.pop(old)
        if not made["prefixItems"]:
            del made["prefixItems"]
    for excluded, bound in _BOUNDS:
        if isinstance(made.get(excluded), bool) and made.pop(excluded) and bound in made:
            made[excluded] = made.pop(bound)
    if isinstance(made.get("dependencies"), dict):
        _split(made, made.pop("dependencies"))
    return made


def _translated_value(key: str, value: Any, root: Json, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    """What stands under a keyword. Nothing changes in data."""
    if key in _NAMED and isinstance(value, dict):
        return {name: _translated(each, root, depth) for name, each in value.items()}
    if key in _LISTED and isinstance(value, list):
        return [_translated(each, root, depth) for each in value]
    if key in _SINGLE:
        return _translated(value, root, depth)
    if key == "$ref" and isinstance(value, str) and value.startswith("#/"):
        return _moved(value, root)
    return value


def _split(made: Json, dependencies: Json) -> None:
    """Dependencies are names of properties, or a schema."""
    names = {name: each for name, each in dependencies.items() if isinstance(each, list)}
    schemas = {name: each for name, each in dependencies.items() if not isinstance(each, list)}
    for keyword, found in (("dependentRequired", names), ("dependentSchemas", schemas)):
        there = made.get(keyword)
        if found:
            made[keyword] = {**there, **found} if isinstance(there, dict) else found


def _moved(reference: str, root: Json) -> str:
    """Where what a JSON pointer (RFC 6901) leads to is once `root` is translated."""
    at: Any = root
    is_schema = True
    parts: list[str] = []
    for part in reference[2:].split("/"):
        new = part
        if isinstance(at, dict):
            if is_schema and part in _TUPLE and isinstance(at.get("items"), list):
                new = _TUPLE[part]
            elif is_schema and part == "dependencies":
                new = "dependentSchemas"
            at = at.get(part.replace("~1", "/").replace("~0", "~"))
            is_schema = not (is_schema and part in _NAMED)
        else:
            found = isinstance(at, list) and part.isdecimal() and len(part) < _MAX_INDEX_DIGITS and int(part) < len(at)
            at = at[int(part)] if found else None
        parts.append(new)
    return "#/" + "/".join(parts)
