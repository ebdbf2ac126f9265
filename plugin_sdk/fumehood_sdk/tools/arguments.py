"""Validates a call's arguments against the types of its tool's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import SchemaValidator, ValidationError, from_json

from fumehood_sdk.json_text import dumps
from fumehood_sdk.schema import plain
from fumehood_sdk.tools.refusal import refusal

if TYPE_CHECKING:
    from fumehood_sdk.schema.parameter import Parameter


class ArgumentValidator(Protocol):
    """Validates the arguments of one tool."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """Their JSON Schema: an object."""

    def validate_json(self, arguments_json: bytes) -> dict[str, Any]:
        """The function's keyword arguments. Raises `pydantic_core.ValidationError`."""


class PlainValidator:
    """Validates arguments whose types `schema.plain` covers.

    Raises:
        NotPlainError: it doesn't.
    """

    __slots__ = ("_validate", "json_schema")

    def __init__(self, parameters: list[Parameter]) -> None:
        fields: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        required: list[str] = []
        for parameter in parameters:
            core, json = plain.schemas_of(parameter.annotation)
            if parameter.description and "description" not in json:
                json["description"] = parameter.description
            if parameter.has_default:
                if not isinstance(parameter.default, _PLAIN):
                    raise plain.NotPlainError
                core = {"type": "default", "schema": core, "default": parameter.default}
                json["default"] = parameter.default
            else:
                required.append(parameter.name)
            properties[parameter.name] = json
            fields[parameter.name] = {
                "type": "typed-dict-field",
                "schema": core,
                "required": not parameter.has_default,
            }
        schema: Any = {"type": "typed-dict", "fields": fields, "extra_behavior": "forbid", "config": {"strict": True}}
        self._validate = SchemaValidator(schema).validate_json
        self.json_schema = {"additionalProperties": False, "properties": properties, "type": "object"}
        if required:
            self.json_schema["required"] = required

    def validate_json(self, arguments_json: bytes) -> dict[str, Any]:
        """The function's keyword arguments. Raises `pydantic_core.ValidationError`."""
        out: dict[str, Any] = self._validate(arguments_json)
        return out


_PLAIN = (str, int, float, bool, type(None))


def make_validator(tool: str, parameters: list[Parameter], namespace: Mapping[str, Any]) -> ArgumentValidator:
    """Make the validator of a tool's arguments. Raises what pydantic raises for a type that it can't check."""
    try:
        return PlainValidator(parameters)
    except plain.NotPlainError:
        from fumehood_sdk.schema.by_pydantic import PydanticValidator  # noqa: PLC0415 - imports pydantic

        return PydanticValidator(tool, parameters, namespace)


def validate_arguments(validator: ArgumentValidator, arguments_json: bytes) -> dict[str, Any]:
    """Check arguments as JSON does: no text for a number, no number for text; 2.0 is an integer (JSON Schema, 4.2.3).

    Raises:
        ToolError: they are wrong, with reason "invalid_arguments" and one entry for each that is.
    """
    try:
        return validator.validate_json(arguments_json or b"{}")
    except ValidationError as error:
        whole = _whole_numbers(error, arguments_json)
        if whole is None:
            raise refusal(error) from None
    try:
        return validator.validate_json(whole)
    except ValidationError as error:
        raise refusal(error) from None


def _whole_numbers(error: ValidationError, arguments_json: bytes) -> bytes | None:
    """The arguments with 2 for 2.0 where an integer is asked for. None: that is not what is wrong."""
    places = [
        entry["loc"]
        for entry in error.errors(include_url=False, include_context=False)
        if entry["type"] in ("int_type", "literal_error")
        and isinstance(entry["input"], float)
        and entry["input"].is_integer()
    ]
    if not places:
        return None
    try:
        document = from_json(arguments_json, allow_inf_nan=False)
    except ValueError:
        return None  # such a number would become null
    for *parents, last in places:
        holder = document
        try:
            for step in parents:
                holder = holder[step]
            holder[last] = int(holder[last])
        except (KeyError, IndexError, TypeError, ValueError):
            continue  # a place within a union's alternative, which is none of the document
    return dumps(document)
