"""Writes JSON: plain values by the standard library, which is small, and whatever else pydantic can by pydantic."""

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
        # Its first value costs a process 10 ms and 0.8 MiB: it looks for each type that it knows, dates and paths too.
        from fumehood_sdk.schema.core import to_json  # noqa: PLC0415

        return to_json(value, inf_nan_mode="null")


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an author returns
    """What a dataclass holds, as pydantic would write it."""
    kind = type(value)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is None or hasattr(kind, "__pydantic_serializer__"):
        raise TypeError
    return {
        name: getattr(value, name)
        for name, field in fields.items()
        if field._field_type.name == "_FIELD"  # noqa: SLF001 - the rest are ClassVar and InitVar
    }


_encode = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_fields).encode
