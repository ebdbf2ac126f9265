"""The step of a call that turns the caller's text into arguments that the tool's schema accepts."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from fumehood_server.calls.schemas import SchemaUnusableError, Validator, Validators
from fumehood_server.calls.steps.coercion import coerce
from fumehood_server.calls.strict_json import JsonError, parse_exact, parse_object
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code

INVALID_ARGUMENTS = "invalid_arguments"
MAX_FAULTS = 20
"""Entries in one answer. A model mends the first ones and sends again."""
_MAX_MESSAGE = 300


def prepare_arguments(tool: RegisteredTool, text: str, validators: Validators) -> str | CallError:
    """The arguments as JSON text for the plugin, or why the call ends here.

    The caller's own text is kept where nothing has to be mended or settled, so that no number loses a digit on the way.
    """
    if not text:
        text = "{}"
    try:
        arguments = parse_object(text)
    except JsonError as exc:
        return _refused(tool, [_fault("", "json", f"the arguments' text {exc.problem}")])
    try:
        validator = validators.get(tool.definition_digest, tool.definition.input_schema_json)
    except SchemaUnusableError as exc:
        return CallError(
            code=Code.CONFIG_PLUGIN_INVALID,
            message=f"The input schema of {tool.definition.name} can't be used: {exc}",
            details={"plugin": tool.plugin},
        )
    if not validator.can_take(text, arguments):
        return _refused(tool, [_fault("", "size", "the arguments are too many or too deep for this tool's schema")])
    if validator.is_valid(arguments):
        return validator.normalise(text, arguments)
    mended = parse_exact(text)
    if coerce(validator, text, mended):
        text = json.dumps(mended, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return validator.normalise(text, mended)
    return _refused(tool, _faults(validator, text, mended))


def pointer(path: list[str | int]) -> str:
    """The path as a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _faults(validator: Validator, text: str, arguments: dict[str, Any]) -> list[dict[str, str]]:
    """One entry for each argument at fault. An argument that breaks several rules is named with the first."""
    if not validator.can_explain(text, arguments):
        return [
            _fault(
                "",
                "size",
                "something in the arguments does not fit the schema; they are too many or too long to say what",
            )
        ]
    found: dict[str, dict[str, str]] = {}
    for error in validator.errors(arguments):
        for path, rule, message in _explain(error):
            found.setdefault(path, _fault(path, rule, message))
        if len(found) >= MAX_FAULTS:
            break
    return list(found.values())[:MAX_FAULTS]


def _explain(error: jsonschema_rs.ValidationError) -> list[tuple[str, str, str]]:
    """Pointer, rule and message; a rule about properties points at each of them, not at the object around them."""
    path, kind = list(error.instance_path), error.kind
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        name = str(kind.property)
        return [(pointer([*path, name]), kind.name, f'"{name}" is required and missing')]
    if isinstance(
        kind,
        jsonschema_rs.ValidationErrorKind.AdditionalProperties
        | jsonschema_rs.ValidationErrorKind.UnevaluatedProperties,
    ):
        return [
            (pointer([*path, name]), kind.name, f'"{name}" is not an argument of this tool') for name in kind.unexpected
        ]
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Enum):
        # The library names three of them and counts the rest; a model needs to know what it may choose from.
        options = json.dumps(kind.options, ensure_ascii=False)[1:-1]
        return [(pointer(path), kind.name, f"must be one of {options}")]
    return [(pointer(path), kind.name, error.message)]


def _fault(path: str, rule: str, message: str) -> dict[str, str]:
    return {"pointer": _cut(path), "rule": rule, "message": _cut(message)}


def _cut(text: str) -> str:
    """Both ends of a long text: messages begin with the value at fault, which can be long, and so can names of keys."""
    if len(text) <= _MAX_MESSAGE:
        return text
    half = (_MAX_MESSAGE - 3) // 2
    return f"{text[:half]}…{text[-half:]}"


def _refused(tool: RegisteredTool, faults: list[dict[str, str]]) -> CallError:
    lines = "; ".join(f"{fault['pointer'] or 'the arguments'}: {fault['message']}" for fault in faults)
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"Invalid arguments for {tool.definition.name}: {lines}. Mend them and call again.",
        details={"reason": INVALID_ARGUMENTS, "arguments": faults},
    )
