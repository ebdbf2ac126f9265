"""Reads and writes JSON: what would hold up the event loop in a thread, between whose steps the loop has its turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from fumehood_server.validation.budget import INLINE
from fumehood_server.validation.strict_json import parse

_Made = TypeVar("_Made")

_BITS_A_DIGIT = 3


def dump(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """The value as JSON, with no spaces and each integer whole."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


async def dumped(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """As `dump`."""
    return await made(dump, value, of=value)


async def loaded(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """What JSON that was checked says, with each integer whole."""
    return await asyncio.to_thread(json.loads, text) if _is_long_text(text) else json.loads(text)


async def loaded_strictly(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """As `loaded`, of text that nobody has checked.

    Raises:
        JsonError: it is no JSON that is taken of anybody.
    """
    return await asyncio.to_thread(_load_strictly, text) if _is_long_text(text) else _load_strictly(text)


async def made(make: Callable[[Any], _Made], given: Any, *, of: Any) -> _Made:  # noqa: ANN401 - any JSON value
    """`make(given)`, which reads or writes the value `of`: in a thread, where that is long."""
    return await asyncio.to_thread(make, given) if is_long(of) else make(given)


def is_long(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether the value's JSON is more than the event loop should write. No more of it is looked at than that."""
    chars, values = 0, 1
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, dict | list | tuple):
            values += len(each)
            if values > INLINE.values:
                return True
            if isinstance(each, dict):
                chars += sum(map(len, each))
                todo += each.values()
            else:
                todo += each
        elif isinstance(each, str):
            chars += len(each)
        elif isinstance(each, int):
            chars += each.bit_length() // _BITS_A_DIGIT
        if chars > INLINE.chars:
            return True
    return False


def _is_long_text(text: str) -> bool:
    return len(text) > INLINE.chars or text.count(",") + text.count("[") + text.count("{") > INLINE.values


def _load_strictly(text: str) -> Any:  # noqa: ANN401 - any JSON value
    parse(text)
    return json.loads(text)


__all__ = ["dump", "dumped", "is_long", "loaded", "loaded_strictly", "made"]
