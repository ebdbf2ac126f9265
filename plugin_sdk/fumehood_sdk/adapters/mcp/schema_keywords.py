"""Drafts of JSON Schema: which one a schema is of, and which keywords that one looks at."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

Json = dict[str, Any]

SINGLE = frozenset(
    {
        *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    }
)
"""Keywords whose value is a schema. What stands under other keywords than these and those below is data."""
LISTED = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
NAMED = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose value is an object of schemas by names."""


class Draft(IntEnum):
    """A draft, in their order."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 8
    UNSAID = 9
    """2020-12, in which what only older drafts have means what it meant there."""


_DIALECT = re.compile(r"https?://json-schema\.org/(?:draft-0([4-7])/schema#?|draft/2019-09/.*)")
_LATEST = re.compile(r"https?://json-schema\.org/draft/2020-12/schema#?")
_NUMBERED = {"4": Draft.DRAFT_4, "5": Draft.DRAFT_4, "6": Draft.DRAFT_6, "7": Draft.DRAFT_7}
"""The draft that is called 5 says again what 4 says."""

_SINCE_2020_12 = frozenset({"$dynamicAnchor", "$dynamicRef", "prefixItems"})
_SINCE_2019_09 = _SINCE_2020_12 | {
    *("$anchor", "$recursiveAnchor", "$recursiveRef", "dependentRequired", "dependentSchemas"),
    *("maxContains", "minContains", "unevaluatedItems", "unevaluatedProperties"),
}
_SINCE_7 = _SINCE_2019_09 | {"else", "if", "then"}
_SINCE_6 = _SINCE_7 | {"$id", "const", "contains", "propertyNames"}
_UNKNOWN = {
    Draft.DRAFT_4: _SINCE_6,
    Draft.DRAFT_6: _SINCE_7,
    Draft.DRAFT_7: _SINCE_2019_09,
    Draft.DRAFT_2019_09: _SINCE_2020_12 | {"dependencies"},
    Draft.UNSAID: frozenset(),
}
"""What would mean something in 2020-12, and nothing in that draft."""
_BESIDE_REF = frozenset({"$defs", "$ref", "default", "definitions", "description", "examples", "title"})
"""What a schema with a `$ref` keeps in the drafts that look at nothing else in it: nothing that refuses a value."""


def draft_of(schema: Json, inherited: Draft) -> Draft | None:
    """The draft that a schema names; the inherited one where it names none. None: it names what is no older draft."""
    dialect = schema.get("$schema")
    if dialect is None:
        return inherited
    found = _DIALECT.fullmatch(dialect) if isinstance(dialect, str) else None
    return found and _NUMBERED.get(found[1], Draft.DRAFT_2019_09)


def is_latest(schema: Json) -> bool:
    """Whether a schema names 2020-12."""
    dialect = schema.get("$schema")
    return isinstance(dialect, str) and bool(_LATEST.fullmatch(dialect))


def looks_at(draft: Draft, schema: Json, keyword: str) -> bool:
    """Whether this keyword of a schema means to the draft what it would in 2020-12, or is only said."""
    if draft <= Draft.DRAFT_7 and isinstance(schema.get("$ref"), str):
        return keyword in _BESIDE_REF
    return keyword not in _UNKNOWN[draft]


def id_of(draft: Draft, schema: Json) -> str:
    """The URI that a schema is called by, as it stands there. Empty: it has none."""
    keyword = "id" if draft == Draft.DRAFT_4 else "$id"
    found = schema.get(keyword) if looks_at(draft, schema, keyword) else None
    return found if isinstance(found, str) else ""
