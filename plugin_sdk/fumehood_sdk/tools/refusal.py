"""Tells a caller what is wrong with arguments: places, rules and what would be taken, never a value of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fumehood_sdk.errors import ToolError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

MAX_ENTRIES = 20
"""Enough to mend a call by; a hostile caller can cause one for each argument."""

_UUID = "Input should be a valid UUID"


def refusal(error: ValidationError) -> ToolError:
    """The error of a call whose arguments are wrong, with one entry for each that is."""
    entries = [
        {
            "pointer": "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in entry["loc"]),
            "rule": _rule(entry),
            "message": _message(entry),
        }
        for entry in error.errors(include_url=False)[:MAX_ENTRIES]
    ]
    told = "; ".join(f"{entry['pointer'] or 'arguments'}: {entry['message']}" for entry in entries[:10])
    return ToolError(f"invalid arguments: {told}", reason="invalid_arguments", details={"arguments": entries})


def _message(entry: ErrorDetails) -> str:
    """Pydantic's message, without the input where it quotes that. What a plugin's own validator says is its author's.

    Of the standard library's errors, such as `ipaddress.AddressValueError`, some quote a part of the input.
    """
    kind, context, value = entry["type"], entry.get("ctx", {}), entry["input"]
    if kind == "union_tag_invalid":
        return f"{context['discriminator']} should be one of {context['expected_tags']}"
    if kind == "uuid_parsing":  # it quotes the character that it stumbles over
        return _UUID
    module = type(context.get("error")).__module__
    if kind == "value_error" and module != "builtins" and module in sys.stdlib_module_names:
        return "Value error, not a value of this type"
    return entry["msg"].replace(repr(value), "the value") if isinstance(value, str) else entry["msg"]


def _rule(entry: ErrorDetails) -> str:
    kind = entry["type"]
    if kind in ("too_short", "too_long"):
        bound = "min" if kind == "too_short" else "max"
        return bound + ("Properties" if entry.get("ctx", {}).get("field_type") == "Dictionary" else "Items")
    return _RULES.get(kind, kind)


_RULES = {
    "missing": "required",
    "extra_forbidden": "additionalProperties",
    "greater_than_equal": "minimum",
    "greater_than": "exclusiveMinimum",
    "less_than_equal": "maximum",
    "less_than": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "string_too_short": "minLength",
    "string_too_long": "maxLength",
    "string_pattern_mismatch": "pattern",
    "literal_error": "enum",
    "enum": "enum",
    **dict.fromkeys(
        (
            "int_type",
            "int_from_float",
            "float_type",
            "string_type",
            "bool_type",
            "none_required",
            "list_type",
            "dict_type",
            "model_type",
            "dataclass_type",
        ),
        "type",
    ),
    "json_invalid": "json",
}
"""JSON Schema's keywords for pydantic's error types: the sidecar, which validates too, names rules by keywords."""
