"""Values by JSON pointer (RFC 6901)."""

from __future__ import annotations

import re
from typing import Any

from fumehood_server.model.json_pointer import unescaped

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_MAX_STEPS = 128
"""JSON of 64 levels has no place below."""


class NothingThereError(LookupError):
    """The document has no value at the pointer."""


def value_at(document: Any, pointer: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value that a pointer names. The empty pointer names the document.

    Raises:
        NothingThereError: there is none, or the text is no pointer.
    """
    if not pointer:
        return document
    first, *steps = pointer.split("/", _MAX_STEPS)
    if first:
        raise NothingThereError
    value = document
    for step in steps:
        key = unescaped(step)
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise NothingThereError
    return value
