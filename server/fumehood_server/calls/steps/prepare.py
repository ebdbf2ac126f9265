"""The step of a call that turns the caller's text into arguments that the tool's schema accepts."""

from __future__ import annotations

import json
from typing import Any

from fumehood_server.calls.explanation import explain, fault_json
from fumehood_server.calls.schemas import SchemaUnusableError, Validator, Validators
from fumehood_server.calls.steps.coercion import coerce
from fumehood_server.calls.strict_json import JsonError, parse_exact, parse_object
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code

INVALID_ARGUMENTS = "invalid_arguments"
MAX_FAULTS = 20
"""Entries in one answer. A model mends the first ones and sends again."""


def prepare_arguments(tool: RegisteredTool, text: str, validators: Validators) -> str | CallError:
    """The arguments as JSON text for the plugin, or why the call ends here.

    The caller's own text is kept where nothing has to be mended or settled, so that no number loses a digit on the way.
    """
    if not text:
        text = "{}"
    try:
        arguments = parse_object(text)
    except JsonError as exc:
        return _refused(tool, [fault_json("", "json", f"the arguments' text {exc.problem}")])
    try:
        validator = validators.get(tool.definition_digest, tool.definition.input_schema_json)
    except SchemaUnusableError as exc:
        return CallError(
            code=Code.CONFIG_PLUGIN_INVALID,
            message=f"The input schema of {tool.name} can't be used: {exc}",
            details={"plugin": tool.plugin},
        )
    if not validator.can_take(text, arguments):
        return _refused(tool, [fault_json("", "size", "the arguments are too many or too deep for this tool's schema")])
    if validator.is_valid(arguments):
        return validator.normalise(text, arguments)
    mended = parse_exact(text)
    if coerce(validator, text, mended):
        text = json.dumps(mended, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return validator.normalise(text, mended)
    return _refused(tool, _faults(validator, text, mended))


def _faults(validator: Validator, text: str, arguments: dict[str, Any]) -> list[dict[str, str]]:
    """One entry for each argument at fault. An argument that breaks several rules is named with the first."""
    if not validator.can_explain(text, arguments):
        return [
            fault_json(
                "",
                "size",
                "something in the arguments does not fit the schema; they are too many or too long to say what",
            )
        ]
    return explain(validator.errors(arguments), unknown="an argument of this tool", limit=MAX_FAULTS)


def _refused(tool: RegisteredTool, faults: list[dict[str, str]]) -> CallError:
    lines = "; ".join(f"{fault['pointer'] or 'the arguments'}: {fault['message']}" for fault in faults)
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"Invalid arguments for {tool.name}: {lines}. Mend them and call again.",
        details={"reason": INVALID_ARGUMENTS, "arguments": faults},
    )
