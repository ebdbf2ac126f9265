"""The step of a call that turns what a worker returned into what the caller may see."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fumehood_server.calls.call import Call
from fumehood_server.calls.cancellation import after_dispatch
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.errors import StepFailedError
from fumehood_server.calls.steps.validate import validate
from fumehood_server.model.call import Block, CallError
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import InvocationResult
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Verdict


@dataclass(frozen=True, slots=True)
class Checked:
    """A result that has passed the output cap and the output schema, or the error that stands in its place."""

    content: tuple[Block, ...] = ()
    details_json: str = ""
    terminate: bool = False
    error: CallError | None = None


async def check_result(
    call: Call, tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult, checks: DocumentChecks
) -> Checked:
    """Hold a worker's result against the output cap and schema; of a failure, the cap alone. Waits only for large ones.

    Raises:
        StepFailedError: there was no verdict, or not before the call was cancelled or met a deadline. It has run.
    """
    document = output_of(tool, spec, result)
    if document is None:
        return checked_result(tool, spec, result, None)
    deadline = call.deadline(Bound.WAIT, time.monotonic(), MIN_WAIT_S)
    try:
        verdict = await validate(call, tool, document, checks, deadline)
    except StepFailedError as exc:
        raise StepFailedError(after_dispatch(tool, exc.error, {"ended_by": "result", "tool_finished": True})) from exc
    return checked_result(tool, spec, result, verdict)


def output_of(tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult) -> Document | None:
    """The document that a result's structured output is; None where there is nothing to validate."""
    if not result.details_json or result.error is not None or _over_cap(tool, spec, result) is not None:
        return None
    schema = tool.definition.output_schema_json
    return Document(Kind.OUTPUT, tool.definition_digest, schema, result.details_json)


def checked_result(
    tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult, verdict: Verdict | None
) -> Checked:
    """What the caller may see, by the verdict about the structured output. None: there is no such document."""
    error = result.error or _over_cap(tool, spec, result)
    if error is None and verdict is not None:
        error = _rejected(tool, verdict)
    elif error is None and tool.definition.output_schema_json:
        message = "the tool returned no structured output"
        error = _invalid(tool, [{"pointer": "", "rule": "required", "message": message}])
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
    return len(result.details_json.encode()) + sum(block.size_bytes for block in result.content)


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


def _rejected(tool: RegisteredTool, verdict: Verdict) -> CallError | None:
    if isinstance(verdict, Accepted):
        return None
    if verdict.flaw is Flaw.NOT_JSON:
        return CallError(
            code=Code.CONSTRAINT_JSON_INVALID,
            message=f"The structured output of {tool.name} {verdict.problem}.",
            details={"plugin": tool.plugin},
        )
    if verdict.flaw is Flaw.SCHEMA_UNUSABLE:
        return CallError(
            code=Code.CONFIG_PLUGIN_INVALID,
            message=f"The output schema of {tool.name} can't be used: {verdict.problem}",
            details={"plugin": tool.plugin},
        )
    return _invalid(tool, list(verdict.faults))


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
