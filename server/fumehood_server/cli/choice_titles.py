"""Titles of the values that a field of a form is chosen from, as MCP's elicitation has them (2025-11-25)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fumehood_server.cli.schema import Schema, resolve


def titles(schema: Schema, root: Schema) -> dict[str, str]:
    """The title of each value, by the value; a value of its own title where it has none. Empty: nothing has one.

    `oneOf` and `anyOf` of `const` and `title`, `enum` with `enumNames`, and the same of a list's items.
    """
    for each in (schema, resolve(schema.get("items"), root)):
        found = dict(_pairs(each, root))
        if any(title != value for value, title in found.items()):
            return found
    return {}


def titled(text: str, schema: Schema, root: Schema) -> str:
    """The value of which `text` is the title; the text where it is a value, or the title of none or of several."""
    known = titles(schema, root)
    if text in known:
        return text
    values = [value for value, title in known.items() if title.strip().casefold() == text.strip().casefold()]
    return values[0] if len(values) == 1 else text


def _pairs(schema: Schema, root: Schema) -> Iterator[tuple[str, str]]:
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        for branch in branches if isinstance(branches, list) else ():
            each = resolve(branch, root)
            if isinstance(each.get("const"), str):
                yield each["const"], _title(each.get("title"), each["const"])
    values, names = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list) and isinstance(names, list) and len(values) == len(names):
        yield from ((value, _title(name, value)) for value, name in zip(values, names, strict=True) if _is_text(value))


def _title(title: Any, value: str) -> str:  # noqa: ANN401 - any JSON
    return title if _is_text(title) and title else value


def _is_text(value: Any) -> bool:  # noqa: ANN401 - likewise
    return isinstance(value, str)


__all__ = ["titled", "titles"]
