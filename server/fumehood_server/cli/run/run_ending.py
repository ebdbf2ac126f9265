"""How a run ended, for a person: the answer, why it failed, what to do, what it used. And the exit status."""

from __future__ import annotations

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli import output
from fumehood_server.cli.failure import ExitStatus
from fumehood_server.cli.json_output import error_json

_CALLERS = frozenset({"CONFIG_SCHEMA_REQUIRED", "CONFIG_GRAMMAR_NOT_FOUND"})
"""Codes that say that the request was wrong."""
_TODO = {
    "CONFIG_NO_ENGINE": "`fumehood doctor` lists the engines; docs/orchestration.md says how to configure one.",
    "CONFIG_SCHEMA_REQUIRED": "Give --schema FILE, or --grammar.",
    "CONFIG_GRAMMAR_NOT_FOUND": "Name one of `grammars` in [orchestration], or give its file.",
    "ORCHESTRATION_ITERATION_LIMIT": "Ask for less, or give --max-iterations, up to the operator's.",
    "ORCHESTRATION_STEP_MISMATCH": "`fumehood journal show RUN` says what it has done. Ask anew, with another --id.",
    "ORCHESTRATION_NO_CONSENSUS": "Ask with more --replicas, or another --consensus.",
    "CANCELLED_TIMEOUT": "Give it more with --timeout, up to `timeout_s` of [orchestration].",
    "INFERENCE_CONTEXT_EXCEEDED": "Say less, begin another --session, or ask an --engine that holds more.",
    "INFERENCE_MODEL_UNAVAILABLE": "See that the engine is up, and that its key is the right one.",
    "TOOL_QUOTA_EXCEEDED": "Raise --budget-tokens, --budget-cost or --budget-tool-calls, or what the operator allows.",
    "CONSTRAINT_JSON_INVALID": "Let what is nearly JSON be mended by --repair.",
}


def run_status(response: pb.SystemResponse, *, named_engine: bool) -> ExitStatus:
    """What the exit status says of a response. A fault of an output that is given all the same is a failure too."""
    if not response.HasField("error"):
        return ExitStatus.OK
    code = response.error.code
    wrong = code in _CALLERS or (code == "CONFIG_NO_ENGINE" and named_engine)
    return ExitStatus.WRONG if wrong else ExitStatus.FAILED


def answer_text(response: pb.SystemResponse) -> str:
    """What the run came to: its output under a contract, as JSON that is easy to read, or else its text."""
    value = output.json_or_text(response.output_json)
    if value is None or isinstance(value, str):
        return response.output_json or response.content
    return output.to_json(value)


def explain(response: pb.SystemResponse) -> None:
    """Say why it failed, and what to do."""
    error = error_json(response.error)
    lines = [f"{error['message']}  [{error['code']}]"]
    cause = error["caused_by"]
    while cause is not None:
        lines.append(f"  because: {cause['message']}  [{cause['code']}]")
        cause = cause["caused_by"]
    output.say(output.Part("error: ", fg="red", bold=True), "\n".join(lines), err=True)
    again = "It may succeed when it is asked again, with another --id." if error["retryable"] else ""
    todo = _TODO.get(error["code"], again).replace("RUN", response.request_id)
    if "quota" in (error["details"] or {}):  # and no budget of the run's own
        todo = "`fumehood policy quotas` shows what is used, and when there is more; [[policy.quota]] says how much."
    if todo:
        output.note(todo)


def footer(response: pb.SystemResponse, wall_s: float) -> str:
    """What it used, on one line."""
    usage = response.usage
    facts = [
        f"{response.state.lower()} in {output.seconds(wall_s)}",
        output.plural(usage.inferences, "answer") + f" of {usage.input_tokens:,} + {usage.output_tokens:,} tokens",
        output.plural(len(response.tool_calls_made), "tool call"),
    ]
    if usage.cost:
        facts.append(f"cost {usage.cost:.4g}")
    if response.HasField("confidence"):
        facts.append(f"confidence {response.confidence:.2f} by {response.confidence_source}")
    return output.one_line("; ".join([*facts, f"run {response.request_id}"]))
