"""Reads and writes JSON: in a thread, and part by part, what would hold up the event loop.

The thread lets go of the interpreter's lock between two parts. A single long text is one part.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from fumehood_server.validation.json_in_parts import (
    TooLongError,
    is_long,
    is_long_text,
    length,
    read,
    read_strictly,
    write,
)
from fumehood_server.validation.strict_json import parse

_Made = TypeVar("_Made")


def dump(value: Any, most_chars: int | None = None) -> str:  # noqa: ANN401 - any JSON value
    """The value as JSON, with no spaces and each integer whole.

    Raises:
        TooLongError: it is longer than that. It was not written to its end.
    """
    return write(value, most_chars)


async def dumped(value: Any, most_chars: int | None = None) -> str:  # noqa: ANN401 - any JSON value
    """As `dump`.

    Raises:
        TooLongError: as `dump`.
    """
    return await made(lambda each: write(each, most_chars), value, of=value)


async def dumped_length(value: Any, most_chars: int) -> int:  # noqa: ANN401 - any JSON value
    """Characters of what `dump` gives.

    Raises:
        TooLongError: as `dump`.
    """
    return await made(lambda each: length(each, most_chars), value, of=value)


def load(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """What JSON that was checked says, with each integer whole."""
    return read(text)


async def loaded(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """As `load`."""
    return await asyncio.to_thread(read, text) if is_long_text(text) else json.loads(text)


async def loaded_strictly(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """As `loaded`, of text that nobody has checked.

    Raises:
        JsonError: it is no JSON that is taken of anybody.
    """
    if is_long_text(text):
        return await asyncio.to_thread(read_strictly, text)
    parse(text)
    return json.loads(text)


async def made(make: Callable[[Any], _Made], given: Any, *, of: Any) -> _Made:  # noqa: ANN401 - any JSON value
    """`make(given)`, which reads or writes the value `of`: in a thread, where that is long."""
    return await asyncio.to_thread(make, given) if is_long(of) else make(given)


__all__ = ["TooLongError", "dump", "dumped", "dumped_length", "is_long", "load", "loaded", "loaded_strictly", "made"]
