"""What JSON pointers find in a call's arguments, for rules; of large arguments in the validator process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fumehood_server.model.json_pointer import unescaped
from fumehood_server.validation.documents import Accepted, Document, Kind, Verdict

MAX_VALUES = 1_000
"""That one pointer may look at, found or not. The event loop waits for each."""
MAX_TEXT_CHARS = 16_384
"""Of a text that is matched by a pattern."""
_INDEX = re.compile("0|[1-9][0-9]*")
"""RFC 6901, section 4."""
_INDEX_DIGITS = 9

MAX_FOUND_CHARS = 4 * 1024 * 1024
"""Of all that is found, as JSON. Arguments have less; pointers may find the same again and again."""
UNTOLD = object()
"""Stands for what a pointer can't tell: what it did not look at any more, or a value of a shape that it can't enter."""
_LONG_TEXT = "\0" * (MAX_TEXT_CHARS + 1)
"""Stands for any text that is too long to be told: conditions are tried on none of them."""


@dataclass(frozen=True, slots=True)
class PointerValues:
    """Stands for arguments: what each of some pointers finds there."""

    found: Mapping[tuple[str, ...], Sequence[Any]]
    chars: int
    """That it has as JSON."""


def pointers_document(pointers: Iterable[str], arguments_json: str) -> Document:
    """The document whose verdict has the values. Its pointers stand in the schema's place."""
    return Document(Kind.POINTERS, "", json.dumps(sorted(pointers)), arguments_json)


def find_values(document: Document) -> Verdict:
    """What the pointers of a `pointers_document` find, as `read_values` takes it.

    A text that is too long to be told is `{"long": true}`, another object or array `{}`, and `UNTOLD` `[]`.
    """
    arguments, left = parse_arguments(document.text), MAX_FOUND_CHARS
    pieces = list[str]()
    for pointer in json.loads(document.schema_json):
        found = list[str]()
        for each in values_at(arguments, pointer_parts(pointer)):
            text = json.dumps(_shown(each))
            left -= len(text) + 1
            if left < 0:
                found.append("[]")
                break
            found.append(text)
        pieces.append(f"[{','.join(found)}]")
    return Accepted(f"[{','.join(pieces)}]")


def _shown(value: Any) -> object:  # noqa: ANN401 - any JSON value
    if value is UNTOLD:
        return []
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return {"long": True}
    return {} if isinstance(value, dict | list) else value


def read_values(document: Document, text: str) -> PointerValues:
    """The values of a verdict's text about a `pointers_document`."""
    pointers: list[str] = json.loads(document.schema_json)
    found: list[list[Any]] = json.loads(text)
    read = ([_read(each) for each in some] for some in found)
    return PointerValues(dict(zip(map(pointer_parts, pointers), read, strict=True)), len(text))


def _read(shown: Any) -> Any:  # noqa: ANN401 - any JSON value
    if shown == []:
        return UNTOLD
    return _LONG_TEXT if shown == {"long": True} else shown


def parse_arguments(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Arguments that were validated before. None are an empty object."""
    try:
        return orjson.loads(text or "{}")
    except ValueError:  # halves of surrogate pairs, which JSON may escape
        return json.loads(text)


def pointer_parts(pointer: str) -> tuple[str, ...]:
    """The reference tokens of a JSON pointer (RFC 6901, section 4)."""
    return tuple(unescaped(part) for part in pointer.split("/")[1:])


def is_plain(pointer: str) -> bool:
    """Whether it leads to one value, if to any."""
    return "*" not in pointer_parts(pointer)


def value_at(value: Any, parts: tuple[str, ...]) -> tuple[bool, Any]:  # noqa: ANN401 - any JSON value
    """Whether there is a value, and which. For a plain pointer."""
    found = value.found[parts] if isinstance(value, PointerValues) else _walk(value, parts, _Budget(1))
    for each in found:
        return True, each
    return False, None


def values_at(value: Any, parts: tuple[str, ...]) -> Iterable[Any]:  # noqa: ANN401 - any JSON value
    """What a pointer finds, in order; `UNTOLD` for what it can't tell."""
    return value.found[parts] if isinstance(value, PointerValues) else _walk(value, parts, _Budget(MAX_VALUES))


class _Budget:
    """How many more elements a pointer may look at."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def _walk(value: Any, parts: Sequence[str], budget: _Budget) -> Iterator[Any]:  # noqa: ANN401 - any JSON value
    """What the pointer finds; at the end of the budget `UNTOLD`, once.

    A name of a list's element, or an element of a text, is `UNTOLD` too: a tool that takes both shapes reads the value
    all the same. A member that isn't there, an element beyond the list's end and what is in a null are not found.
    """
    for place, part in enumerate(parts):
        if part == "*" and isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                if budget.left <= 0:
                    if budget.left == 0:
                        yield UNTOLD
                    budget.left = -1
                    return
                budget.left -= 1
                yield from _walk(each, parts[place + 1 :], budget)
            return
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.fullmatch(part):
            if len(part) > _INDEX_DIGITS or int(part) >= len(value):
                return
            value = value[int(part)]
        else:
            if value is not None and not isinstance(value, dict):
                yield UNTOLD
            return
    yield value
