"""Translates JSON Schemas of drafts 4 to 7 and 2019-09, by which many servers list their tools, into 2020-12.

What those drafts write otherwise: tuples, bounds that are excluded and `id` (draft 4), what one property requires of
others, names of schemas, recursion (2019-09). What a draft doesn't look at is left out: keywords that came later, and
up to draft 7 what stands beside a `$ref`. See the release notes of each (json-schema.org). All else stays as it is,
also what is wrong. Whatever the draft, references by the schema's own URI become pointers, which the sidecar takes.
"""

from __future__ import annotations

import re
from typing import Any

from fumehood_sdk.adapters.mcp.schema_keywords import LISTED, NAMED, SINGLE, Draft, Json, is_latest, looks_at
from fumehood_sdk.adapters.mcp.schema_references import TUPLE, Scope, whole, with_own_references

MAX_DEPTH = 64
"""Of schemas in each other. The sidecar takes none that is nested deeper."""
_NAME = re.compile(r"#([A-Za-z_][-A-Za-z0-9._]*)")
"""What an `$id` was that is an `$anchor` now."""
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def to_2020_12(schema: object) -> object:
    """The schema as one of 2020-12, without the names of older dialects. One that names another stays as it is.

    So does one that names 2020-12, but for references by its own URI. In one that names none, what only older drafts
    have means what it meant there.
    """
    if not isinstance(schema, dict):
        return schema
    if is_latest(schema):
        return with_own_references(schema, MAX_DEPTH)
    made: Json = _translated(schema, whole(schema, Draft.UNSAID), MAX_DEPTH)
    # Beside a `$ref` older drafts don't look at it, and the sidecar asks for it: arguments and results are objects.
    return {**made, "type": "object"} if schema.get("type") == "object" else made


def _translated(schema: Any, around: Scope, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if not isinstance(schema, dict) or depth == 0 or (scope := around.within(schema)) is None:
        return schema
    made = {
        key: _translated_value(key, value, scope, depth - 1)
        for key, value in schema.items()
        if key != "$schema" and looks_at(scope.draft, schema, key)
    }
    _rename(made)
    if isinstance(made.get("dependencies"), dict):
        _split(made, made.pop("dependencies"))
    if scope.draft <= Draft.DRAFT_7:
        _name(made, scope.draft)
    if scope.draft == Draft.DRAFT_2019_09:
        _recur(made, scope)
    return made


def _rename(made: Json) -> None:
    """Tuples, and bounds that are excluded."""
    if isinstance(made.get("items"), list):
        for old, new in TUPLE.items():
            if old in made:
                made[new] = made.pop(old)
        if not made["prefixItems"]:
            del made["prefixItems"]
    for excluded, bound in _BOUNDS:
        if isinstance(made.get(excluded), bool) and made.pop(excluded) and bound in made:
            made[excluded] = made.pop(bound)


def _translated_value(key: str, value: Any, scope: Scope, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    """What stands under a keyword. Nothing changes in data."""
    if key in NAMED and isinstance(value, dict):
        return {name: _translated(each, scope, depth) for name, each in value.items()}
    if key in LISTED and isinstance(value, list):
        return [_translated(each, scope, depth) for each in value]
    if key in SINGLE:
        return _translated(value, scope, depth)
    if key == "$ref" and isinstance(value, str):
        return scope.reference(value)
    return value


def _split(made: Json, dependencies: Json) -> None:
    """Dependencies are names of properties, or a schema."""
    names = {name: each for name, each in dependencies.items() if isinstance(each, list)}
    schemas = {name: each for name, each in dependencies.items() if not isinstance(each, list)}
    for keyword, found in (("dependentRequired", names), ("dependentSchemas", schemas)):
        there = made.get(keyword)
        if found:
            made[keyword] = {**there, **found} if isinstance(there, dict) else found


def _name(made: Json, draft: Draft) -> None:
    """A URI is `id` in draft 4, and up to draft 7 one that is only a fragment is a name within the schema."""
    if draft == Draft.DRAFT_4 and isinstance(made.get("id"), str):
        made["$id"] = made.pop("id")
    found = made.get("$id")
    if isinstance(found, str) and (name := _NAME.fullmatch(found)):
        del made["$id"]
        made["$anchor"] = name[1]


def _recur(made: Json, scope: Scope) -> None:
    """`$recursiveAnchor` is for schemas that extend another one. Of one alone, `$recursiveRef` leads to the whole."""
    if made.get("$recursiveRef") == "#":
        made["$dynamicRef"] = made.pop("$recursiveRef")
    if isinstance(made.get("$recursiveAnchor"), bool) and (scope.is_one_resource or not made["$recursiveAnchor"]):
        del made["$recursiveAnchor"]
