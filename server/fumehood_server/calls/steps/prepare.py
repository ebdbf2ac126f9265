"""The step of a call that turns the caller's text into arguments that the tool's schema accepts."""

from __future__ import annotations

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.calls.steps.validate import validate
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.validation.documents import Accepted, Document, Flaw, Kind, Verdict
from fumehood_server.validation.explanation import fault_json

INVALID_ARGUMENTS = "invalid_arguments"


async def prepare_arguments(
    call: Call, tool: RegisteredTool, checks: DocumentChecks, *, hashed: bool, text: str | None = None
) -> Accepted | CallError:
    """The arguments as the plugin gets them, with their canonical hash if wanted, or why the call ends here.

    `text`: what to make them of. None: of what the caller sent.

    Raises:
        EndedEarlyError: the call was cancelled or met a deadline before.
        StepFailedError: they could not be validated.
    """
    deadline = call.deadline(Bound.WAIT, call.ready_at, max(MIN_WAIT_S, tool.timeout_s))
    document = arguments_of(tool, call.request.arguments_json if text is None else text, hashed=hashed)
    return settled(tool, await validate(call, tool, document, checks, deadline))


def arguments_of(tool: RegisteredTool, text: str, *, hashed: bool = False) -> Document:
    """The document that a call's arguments are. No text is no arguments."""
    return Document(Kind.ARGUMENTS, tool.definition_digest, tool.definition.input_schema_json, text or "{}", hashed)


def settled(tool: RegisteredTool, verdict: Verdict) -> Accepted | CallError:
    """What a verdict about arguments says for the call."""
    if isinstance(verdict, Accepted):
        return verdict
    if verdict.flaw is Flaw.SCHEMA_UNUSABLE:
        return CallError(
            code=Code.CONFIG_PLUGIN_INVALID,
            message=f"The input schema of {tool.name} can't be used: {verdict.problem}",
            details={"plugin": tool.plugin},
        )
    faults = list(verdict.faults)
    if verdict.flaw is Flaw.NOT_JSON:
        faults = [fault_json("", "json", f"the arguments' text {verdict.problem}")]
    lines = "; ".join(f"{fault['pointer'] or 'the arguments'}: {fault['message']}" for fault in faults)
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"Invalid arguments for {tool.name}: {lines}. Mend them and call again.",
        details={"reason": INVALID_ARGUMENTS, "arguments": faults},
    )
