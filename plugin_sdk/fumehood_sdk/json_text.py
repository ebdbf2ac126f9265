"""Serializes JSON: plain values by the standard library, all others by `pydantic_core`."""

from __future__ import annotations

from json.encoder import JSONEncoder, encode_basestring
from typing import Any


def dumps(value: object) -> bytes:
    """Write a value as compact JSON in UTF-8. Numbers that JSON lacks (NaN, infinities) become null.

    Raises:
        ValueError: it holds what JSON can't.
    """
    try:
        if type(value) is str:
            return encode_basestring(value).encode()
        return _encode(value).encode()
    except (TypeError, ValueError, AttributeError, RecursionError):
        from pydantic_core import to_json  # noqa: PLC0415 - the shim of kind `cli` starts without it

        return to_json(value, inf_nan_mode="null")


def _dataclass_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an author returns
    """The fields of a dataclass by name, as pydantic would write them."""
    from dataclasses import fields  # noqa: PLC0415 - imported already where there is a dataclass

    if hasattr(type(value), "__pydantic_serializer__"):
        raise TypeError  # it has a serializer of its own
    return {field.name: getattr(value, field.name) for field in fields(value)}


_encode = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_dataclass_fields).encode
