"""Where a `$ref` of an older draft leads to, once the schema that holds it is translated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urljoin

from fumehood_sdk.adapters.mcp.schema_keywords import LISTED, NAMED, SINGLE, Draft, Json, draft_of, id_of, looks_at

TUPLE = {"items": "prefixItems", "additionalItems": "items"}
"""What the keywords of a tuple are called now, in this order."""
_MAX_INDEX_DIGITS = 10
_DATA: frozenset[str] = frozenset()
_NOWHERE = "/not_in_this_draft"
"""Where a pointer to what the draft doesn't look at leads: that isn't translated, and may be the name of what is."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds where a schema stands."""

    draft: Draft
    resource: Json
    """The innermost schema around it with a URI of its own, which pointers start from; or the whole."""
    resource_draft: Draft
    base: str
    """The URI of `resource`. Empty: it has none."""
    is_one_resource: bool
    """Whether no schema within the whole has a URI of its own."""

    def within(self, schema: Json) -> Scope | None:
        """What holds in a schema that stands here. None: it names what is no older draft."""
        draft = draft_of(schema, self.draft)
        if draft is None:
            return None
        uri = id_of(draft, schema).partition("#")[0]
        if not uri:
            return replace(self, draft=draft)
        return replace(self, draft=draft, resource=schema, resource_draft=draft, base=_joined(self.base, uri))

    def reference(self, reference: str) -> str:
        """The reference as it is to be written. One to another resource stays as it is."""
        uri, _, fragment = reference.partition("#")
        if uri and _joined(self.base, uri) != self.base:
            return reference
        return "#" + (self._moved(fragment) if fragment.startswith("/") else fragment)

    def _moved(self, pointer: str) -> str:
        """A JSON pointer (RFC 6901) to where what it leads to is now. What is data stays where it is."""
        at: Any = self.resource
        draft = self.resource_draft
        held = SINGLE
        """Of which keywords `at` is a value."""
        parts: list[str] = []
        for part in pointer[1:].split("/"):
            name, new = unquote(part).replace("~1", "/").replace("~0", "~"), part
            if held is LISTED:
                at, held = _item(at, name), SINGLE
            elif held is NAMED:
                at, held = at.get(name), SINGLE
            elif held is SINGLE and isinstance(at, dict) and (found := draft_of(at, draft)):
                draft = found
                if not looks_at(draft, at, name):
                    return _NOWHERE + pointer
                new = _renamed(at, name, part)
                at = at.get(name)
                held = _held(name, at)
            else:
                held = _DATA
            parts.append(new)
        return "/" + "/".join(parts)


def whole(schema: Json, draft: Draft) -> Scope:
    """What holds in a whole schema."""
    return Scope(draft, schema, draft, "", is_one_resource=not _names_a_resource(schema))


def with_own_references(schema: Json, depth: int) -> Json:
    """A schema of 2020-12 in which references by its own URI lead to `#`. All else stays, as do parts with a URI."""
    base = id_of(Draft.UNSAID, schema).partition("#")[0]
    return _within_own(schema, base, depth) if base else schema


def _within_own(schema: Json, base: str, depth: int) -> Json:
    return {key: _own_value(key, value, base, depth - 1) for key, value in schema.items()}


def _own_value(key: str, value: Any, base: str, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if key == "$ref" and isinstance(value, str):
        uri, _, fragment = value.partition("#")
        return f"#{fragment}" if uri and _joined(base, uri) == base else value
    if key in NAMED and isinstance(value, dict):
        return {name: _own_part(each, base, depth) for name, each in value.items()}
    if key in LISTED and isinstance(value, list):
        return [_own_part(each, base, depth) for each in value]
    return _own_part(value, base, depth) if key in SINGLE else value


def _own_part(schema: Any, base: str, depth: int) -> Any:  # noqa: ANN401 - any JSON value
    if not isinstance(schema, dict) or depth == 0 or "$id" in schema or "$schema" in schema:
        return schema
    return _within_own(schema, base, depth)


def _names_a_resource(schema: Json) -> bool:
    """Whether anything in it has an `$id`, be it data."""
    pending = [*schema.values()]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if "$id" in each:
                return True
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    return False


def _renamed(schema: Json, keyword: str, part: str) -> str:
    if keyword in TUPLE and isinstance(schema.get("items"), list):
        return TUPLE[keyword]
    return "dependentSchemas" if keyword == "dependencies" else part


def _held(keyword: str, value: object) -> frozenset[str]:
    """The keywords among which this one is, with such a value."""
    if keyword in LISTED and isinstance(value, list):
        return LISTED
    if keyword in NAMED and isinstance(value, dict):
        return NAMED
    return SINGLE if keyword in SINGLE else _DATA


def _item(values: list[Any], part: str) -> Any:  # noqa: ANN401 - any JSON value
    found = part.isdecimal() and part.isascii() and len(part) < _MAX_INDEX_DIGITS and int(part) < len(values)
    return values[int(part)] if found else None


def _joined(base: str, uri: str) -> str:
    """As RFC 3986 has it; what is no URI stays as it is."""
    try:
        return urljoin(base, uri)
    except ValueError:
        return uri
