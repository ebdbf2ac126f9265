"""The step of a call that turns what a worker returned into what the caller may see."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.calls.explanation import explain
from fumehood_server.calls.schemas import SchemaUnusableError, Validator, Validators
from fumehood_server.calls.strict_json import JsonError, parse
from fumehood_server.model.call import Block, CallError
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import InvocationResult

_MAX_FAULTS = 5


@dataclass(frozen=True, slots=True)
class Checked:
    """A result that has passed the output cap and the output schema, or the error that stands in its place."""

    content: tuple[Block, ...] = ()
    details_json: str = ""
    terminate: bool = False
    error: CallError | None = None


def check_result(tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult, validators: Validators) -> Checked:
    """Hold a worker's result against the output cap and schema; of a failure, the cap alone."""
    error = result.error or _over_cap(tool, spec, result)
    if error is None and (result.details_json or tool.definition.output_schema_json):
        error = _check_details(tool, result.details_json, validators)
    if error is not None:
        keep = result.error is not None and _over_cap(tool, spec, result) is None
        content = result.content if keep else ()
        return Checked(content or show(error), "", terminate=False, error=error)
    content = result.content
    if not content and result.details_json:
        content = (Block(text=result.details_json),)
    return Checked(content, result.details_json, result.terminate)


def show(error: CallError) -> tuple[Block, ...]:
    """The error as content, for a model that reads nothing else."""
    return (Block(text=error.message),)


def output_size(result: InvocationResult) -> int:
    """Bytes of content and details together."""
    size = len(result.details_json.encode())
    for block in result.content:
        size += len(block.data) if block.data is not None else len((block.text or "").encode())
    return size


def _over_cap(tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult) -> CallError | None:
    # The frames of a call, updates included, are no smaller than its content and details.
    if result.output_bytes <= spec.output_bytes:
        return None
    size = output_size(result)
    if size <= spec.output_bytes:
        return None
    return CallError(
        code=Code.TOOL_RESOURCE_EXHAUSTED,
        message=(
            f"{tool.name} returned {size:,} bytes, text and structured output together; its limit "
            f"output_bytes is {spec.output_bytes:,} bytes. Ask it for less; its author can declare more "
            "in the tool's limits, and its operator allow more with output_bytes in [limits.default] and "
            "[limits.cap] of fumehood.toml."
        ),
        details={"limit": "output_bytes", "value": spec.output_bytes, "usage": size, "unit": "bytes"},
    )


def _check_details(tool: RegisteredTool, details_json: str, validators: Validators) -> CallError | None:
    definition = tool.definition
    if not details_json:
        return _invalid(
            tool, [{"pointer": "", "rule": "required", "message": "the tool returned no structured output"}]
        )
    try:
        details = parse(details_json)
    except JsonError as exc:
        return CallError(
            code=Code.CONSTRAINT_JSON_INVALID,
            message=f"The structured output of {tool.name} {exc.problem}.",
            details={"plugin": tool.plugin},
        )
    if not definition.output_schema_json:
        return None
    try:
        validator = validators.get(tool.definition_digest, definition.output_schema_json, output=True)
    except SchemaUnusableError as exc:
        return CallError(
            code=Code.CONFIG_PLUGIN_INVALID,
            message=f"The output schema of {tool.name} can't be used: {exc}",
            details={"plugin": tool.plugin},
        )
    if not validator.can_take(details_json, details):
        return _invalid(tool, [{"pointer": "", "rule": "size", "message": "it is too large or deep for this schema"}])
    return None if validator.is_valid(details) else _invalid(tool, _faults(validator, details_json, details))


def _faults(validator: Validator, details_json: str, details: object) -> list[dict[str, str]]:
    if not validator.can_explain(details_json, details):
        return [{"pointer": "", "rule": "size", "message": "it does not fit, and is too large to say where"}]
    return explain(validator.errors(details), unknown="in the output schema", limit=_MAX_FAULTS, at_names=False)


def _invalid(tool: RegisteredTool, faults: list[dict[str, str]]) -> CallError:
    first = faults[0]
    return CallError(
        code=Code.CONSTRAINT_SCHEMA_INVALID,
        message=(
            f"{tool.name} ran, but its output does not fit its own schema: "
            f"{first['pointer'] or 'the output'}: {first['message']}. This is for the plugin's author to mend."
        ),
        details={"plugin": tool.plugin, "output": faults},
    )
