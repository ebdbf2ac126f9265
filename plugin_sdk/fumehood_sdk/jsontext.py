"""Writes JSON with what is loaded already: pydantic's writer in a Python plugin, the standard library's elsewhere."""

from __future__ import annotations

import sys
from typing import Any


def dumps(value: object) -> bytes:
    """Write a value as compact JSON in UTF-8. Numbers that JSON lacks (NaN, infinities) become null.

    Raises:
        ValueError: it holds what JSON can't.
    """
    core = sys.modules.get("pydantic_core")
    if core is not None:
        return _by_pydantic(core, value)
    import json  # noqa: PLC0415 - costs a start what most workers never use

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    except TypeError as error:
        raise ValueError(str(error)) from error


def _by_pydantic(core: Any, value: object) -> bytes:  # noqa: ANN401 - a module that may not be imported here
    try:
        written: bytes = core.to_json(value, inf_nan_mode="null")
    except core.PydanticSerializationError as error:
        raise ValueError(str(error)) from error
    return written
