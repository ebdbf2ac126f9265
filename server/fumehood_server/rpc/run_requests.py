"""Reads requests for runs, and refuses those that are wrong in themselves."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fumehood.v1 import orchestration_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallContext
from fumehood_server.model.caller import Caller
from fumehood_server.model.durations import duration_s
from fumehood_server.model.json_counts import too_much_of
from fumehood_server.orchestration.messages import Message, Role, ToolUse
from fumehood_server.orchestration.request import (
    Budget,
    Consensus,
    Hints,
    Mode,
    OutputContract,
    PlanPolicy,
    Rule,
    SystemRequest,
)
from fumehood_server.rpc.admission import MAX_CONTEXT_BYTES, new_id

MAX_MESSAGES = 1_000
MAX_MESSAGES_BYTES = 1024 * 1024
"""Of the messages of one request together."""
MAX_SCHEMA_BYTES = 64 * 1024
MAX_GRAMMAR_BYTES = 64 * 1024
MAX_PLAN_BYTES = 256 * 1024
MAX_VENDOR_BYTES = 16 * 1024
MAX_SEMANTIC_BYTES = 4 * 1024
MAX_RULES = 64
MAX_RULES_BYTES = 64 * 1024
"""Of all of them together."""
MAX_RULE_VALUES = 4_096
"""In `one_of_json` of all of them: each is read as JSON."""
MAX_TOOLS = 1_000
MAX_STEP_KINDS = 16
MAX_FIELDS = 16_384
"""Fields of a long request on all levels: as many messages, tool uses and tools as there may be take 13,000."""
MAX_TOOL_USES = 1_000
"""In the messages of one request: each has a message with its result."""
DEFAULT_ITERATIONS = 20
DEFAULT_RETRIES, MOST_RETRIES = 2, 10
DEFAULT_REPLICAS, MOST_REPLICAS = 3, 16
DEFAULT_STEPS, MOST_STEPS = 32, 256
_STEP_KINDS = frozenset({"infer", "tool", "validate", "map"})

_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_USE_ID = re.compile(r"[!-~]{1,128}", re.ASCII)
_MODES = {
    pb.MODE_UNSPECIFIED: Mode.CHAT,
    pb.MODE_CHAT: Mode.CHAT,
    pb.MODE_STRUCTURED: Mode.STRUCTURED,
    pb.MODE_PLAN: Mode.PLAN,
    pb.MODE_REDUNDANT: Mode.REDUNDANT,
}
_ROLES = {
    pb.MESSAGE_ROLE_SYSTEM: Role.SYSTEM,
    pb.MESSAGE_ROLE_USER: Role.USER,
    pb.MESSAGE_ROLE_ASSISTANT: Role.ASSISTANT,
    pb.MESSAGE_ROLE_TOOL: Role.TOOL,
}
_OF_ONE_MODE = frozenset(each.value for each in Mode)
_CONSENSUS: Mapping[int, Consensus] = {
    pb.CONSENSUS_UNSPECIFIED: Consensus.MAJORITY,
    pb.CONSENSUS_MAJORITY: Consensus.MAJORITY,
    pb.CONSENSUS_UNANIMOUS: Consensus.UNANIMOUS,
    pb.CONSENSUS_PLURALITY: Consensus.PLURALITY,
}


def read_run(
    request: pb.SystemRequest,
    caller_deadline: float | None,
    *,
    caller: Caller,
    max_iterations: int,
    vendor_options: bool,
    grammars: Mapping[str, str],
) -> SystemRequest:
    """The request as ours.

    `max_iterations` is the operator's; `vendor_options`: whether callers may hand options to engines; `grammars` are
    the operator's, by name.

    Raises:
        RefusedError: it is wrong in itself.
    """
    mode = _MODES.get(request.mode)
    if mode is None:
        raise _invalid("mode", "there is no such mode")
    for descriptor, _ in request.ListFields():
        if descriptor.name in _OF_ONE_MODE and descriptor.name != mode.value:
            raise _invalid(descriptor.name, f"is for mode {descriptor.name} alone")
    is_named = bool(request.request_id)
    if is_named and _ID.fullmatch(request.request_id) is None:
        raise _invalid("request_id", "must be 1 to 64 characters of [A-Za-z0-9._:-]")
    if request.session_id and _ID.fullmatch(request.session_id) is None:
        raise _invalid("session_id", "must be 1 to 64 characters of [A-Za-z0-9._:-]")
    if request.continue_if_disconnected and not is_named:
        raise _invalid("continue_if_disconnected", "needs a request_id, by which the run is asked for again")
    output = _output(request.output, grammars)
    if not output.is_empty and mode is Mode.CHAT:
        raise _invalid("output", "is for the other modes: MODE_STRUCTURED has a model answer under a schema")
    hints = request.hints
    loop = request.structured.max_tool_iterations if mode is Mode.STRUCTURED else request.chat.max_iterations
    return SystemRequest(
        request_id=request.request_id or f"run-{new_id()}",
        is_named=is_named,
        session_id=request.session_id,
        context=_context(request),
        messages=read_messages(request.messages, "messages"),
        mode=mode,
        hints=_hints(hints, vendor_options=vendor_options),
        output=output,
        allowed_tools=_allowed_tools(request),
        engine=request.engine[:MAX_CONTEXT_BYTES],
        budget=_budget(request.budget),
        timeout_s=_positive_s(hints.timeout, "hints.timeout") if hints.HasField("timeout") else None,
        max_iterations=min(_count(loop, "max_iterations", DEFAULT_ITERATIONS), max_iterations),
        max_retries=_retries(request.structured.max_retries),
        replicas=_replicas(request.redundant.replicas),
        consensus=_known(_CONSENSUS, request.redundant.consensus, "redundant.consensus"),
        vote_pointer=_short(request.redundant.vote_pointer, "redundant.vote_pointer", MAX_CONTEXT_BYTES),
        plan_json=_short(request.plan.plan_json, "plan.plan_json", MAX_PLAN_BYTES),
        plan_policy=_plan_policy(request.plan.policy),
        continues=request.continue_if_disconnected,
        caller=caller,
        caller_deadline=None if request.continue_if_disconnected else caller_deadline,
    )


def read_messages(
    messages: Sequence[pb.Message], field: str, roles: frozenset[Role] | None = None
) -> tuple[Message, ...]:
    """Messages as ours. `roles`: who may say them. None: anybody.

    Raises:
        RefusedError: they are wrong in themselves.
    """
    if len(messages) > MAX_MESSAGES:
        raise _invalid(field, f"has more than {MAX_MESSAGES} entries")
    found: list[Message] = []
    used: dict[str, str] = {}
    size = uses = 0
    for index, each in enumerate(messages):
        where = f"{field}[{index}]"
        role = _ROLES.get(each.role)
        if role is None or (roles is not None and role not in roles):
            raise _invalid(f"{where}.role", "is not one that may be here")
        size += each.ByteSize()
        if size > MAX_MESSAGES_BYTES:
            raise _invalid(field, f"are more than {MAX_MESSAGES_BYTES} bytes")
        uses += len(each.tool_uses)
        if uses > MAX_TOOL_USES:
            raise _invalid(field, f"have more than {MAX_TOOL_USES} tool_uses")
        found.append(_message(each, role, where, used))
    if not found:
        raise _invalid(field, "is empty: something must be said")
    return tuple(found)


def _message(message: pb.Message, role: Role, where: str, used: dict[str, str]) -> Message:
    """`used` are the tools of the uses before it, by id, to which it adds its own."""
    if message.tool_uses and role is not Role.ASSISTANT:
        raise _invalid(f"{where}.tool_uses", "is for messages of ASSISTANT alone")
    if bool(message.tool_use_id) is not (role is Role.TOOL):
        raise _invalid(f"{where}.tool_use_id", "is for messages of TOOL, and required there")
    if message.is_error and role is not Role.TOOL:
        raise _invalid(f"{where}.is_error", "is for messages of TOOL alone")
    if not message.text and not message.tool_uses and role is not Role.TOOL:
        raise _invalid(f"{where}.text", "is empty")
    uses = tuple(ToolUse(id=each.id, tool=each.tool, arguments_json=each.arguments_json) for each in message.tool_uses)
    for use in uses:
        if _USE_ID.fullmatch(use.id) is None:
            raise _invalid(f"{where}.tool_uses", "have ids of 1 to 128 printable ASCII characters")
        if held := too_much_of(use.arguments_json.encode()):
            raise _invalid(f"{where}.tool_uses", f"have arguments_json of {held}")
    tool = ""
    if role is Role.TOOL:
        if message.tool_use_id not in used:
            raise _invalid(f"{where}.tool_use_id", "is that of no tool use before it")
        tool = used[message.tool_use_id]
    used.update((use.id, use.tool) for use in uses)
    return Message(
        role=role,
        text=message.text,
        tool_uses=uses,
        tool_use_id=message.tool_use_id,
        tool=tool,
        is_error=message.is_error,
    )


def _context(request: pb.SystemRequest) -> CallContext:
    found = {}
    for name in ("trace_id", "span_id", "parent_span_id", "caused_by"):
        found[name] = _short(getattr(request.context, name), f"context.{name}", MAX_CONTEXT_BYTES)
    return CallContext(**found)


def _hints(hints: pb.ExecutionHints, *, vendor_options: bool) -> Hints:
    if hints.HasField("max_tokens") and hints.max_tokens <= 0:
        raise _invalid("hints.max_tokens", "must be positive")
    if hints.HasField("temperature") and not 0 <= hints.temperature <= 2:  # noqa: PLR2004 - see the proto
        raise _invalid("hints.temperature", "must be from 0 to 2")
    if hints.HasField("top_p") and not 0 < hints.top_p <= 1:
        raise _invalid("hints.top_p", "must be above 0 and at most 1")
    options: Mapping[str, Any] = {}
    if hints.vendor_options_json:
        if not vendor_options:
            raise _invalid("hints.vendor_options_json", "the operator allows none ([orchestration] vendor_options)")
        options = _json_object(hints.vendor_options_json, "hints.vendor_options_json", MAX_VENDOR_BYTES)
    return Hints(
        max_tokens=hints.max_tokens if hints.HasField("max_tokens") else None,
        temperature=hints.temperature if hints.HasField("temperature") else None,
        top_p=hints.top_p if hints.HasField("top_p") else None,
        vendor_options=options,
    )


def _output(output: pb.OutputContract, grammars: Mapping[str, str]) -> OutputContract:
    schema = _json_object(output.schema_json, "output.schema_json", MAX_SCHEMA_BYTES) if output.schema_json else None
    grammar = _short(output.grammar, "output.grammar", MAX_GRAMMAR_BYTES)
    if schema is not None and grammar:
        raise _invalid("output.grammar", "is not for a request that has a schema")
    if len(output.rules) > MAX_RULES:
        raise _invalid("output.rules", f"has more than {MAX_RULES} entries")
    if sum(each.ByteSize() for each in output.rules) > MAX_RULES_BYTES:
        raise _invalid("output.rules", f"are more than {MAX_RULES_BYTES} bytes")
    if sum(len(each.one_of_json) for each in output.rules) > MAX_RULE_VALUES:
        raise _invalid("output.rules", f"have more than {MAX_RULE_VALUES:,} values in one_of_json")
    return OutputContract(
        schema=schema,
        grammar=grammars.get(grammar, grammar),
        repair_allowed=output.repair_allowed,
        strict=output.strict,
        rules=tuple(_rule(each, f"output.rules[{index}]") for index, each in enumerate(output.rules)),
        semantic_check=_short(output.semantic_check, "output.semantic_check", MAX_SEMANTIC_BYTES),
    )


def _rule(rule: pb.ValidationRule, where: str) -> Rule:
    if not rule.name or len(rule.name) > MAX_CONTEXT_BYTES:
        raise _invalid(f"{where}.name", f"must be 1 to {MAX_CONTEXT_BYTES} characters")
    try:
        one_of = tuple(map(_loads, rule.one_of_json))
    except ValueError:
        raise _invalid(f"{where}.one_of_json", "is not JSON, or is nested too deeply") from None
    return Rule(
        name=rule.name,
        pointer=_short(rule.pointer, f"{where}.pointer", MAX_CONTEXT_BYTES),
        one_of=one_of,
        pattern=_short(rule.pattern, f"{where}.pattern", MAX_CONTEXT_BYTES),
        minimum=_finite(rule.minimum, f"{where}.minimum") if rule.HasField("minimum") else None,
        maximum=_finite(rule.maximum, f"{where}.maximum") if rule.HasField("maximum") else None,
    )


def _allowed_tools(request: pb.SystemRequest) -> frozenset[str] | None:
    names = request.allowed_tools
    if request.no_tools:
        if names:
            raise _invalid("allowed_tools", "is not empty beside no_tools")
        return frozenset()
    if len(names) > MAX_TOOLS:
        raise _invalid("allowed_tools", f"has more than {MAX_TOOLS} entries")
    for name in names:
        _short(name, "allowed_tools", MAX_CONTEXT_BYTES)
    return frozenset(names) if names else None


def _budget(budget: pb.RunBudget) -> Budget:
    for name in ("max_tokens", "max_cost", "max_tool_calls"):
        value = getattr(budget, name)
        if value < 0 or not math.isfinite(value):
            raise _invalid(f"budget.{name}", "must not be negative")
    return Budget(
        max_tokens=budget.max_tokens or None,
        max_cost=budget.max_cost or None,
        max_tool_calls=budget.max_tool_calls or None,
    )


def _plan_policy(policy: pb.PlanPolicy) -> PlanPolicy:
    if len(policy.allowed_step_kinds) > MAX_STEP_KINDS:
        raise _invalid("plan.policy.allowed_step_kinds", f"has more than {MAX_STEP_KINDS} entries")
    kinds = frozenset(policy.allowed_step_kinds)
    if kinds - _STEP_KINDS:
        raise _invalid("plan.policy.allowed_step_kinds", f"are of {', '.join(sorted(_STEP_KINDS))}")
    return PlanPolicy(
        max_steps=min(_count(policy.max_steps, "plan.policy.max_steps", DEFAULT_STEPS), MOST_STEPS),
        allowed_step_kinds=kinds or _STEP_KINDS,
        require_linear=policy.require_linear,
        step_timeout_s=_positive_s(policy.step_timeout, "plan.policy.step_timeout")
        if policy.HasField("step_timeout")
        else None,
    )


def _retries(asked: int) -> int:
    return 0 if asked < 0 else min(asked or DEFAULT_RETRIES, MOST_RETRIES)


def _replicas(asked: int) -> int:
    if asked and not 2 <= asked <= MOST_REPLICAS:  # noqa: PLR2004 - one has nobody to vote with
        raise _invalid("redundant.replicas", f"must be 2 to {MOST_REPLICAS}")
    return asked or DEFAULT_REPLICAS


def _known(table: Mapping[int, Consensus], value: int, where: str) -> Consensus:
    found = table.get(value)
    if found is None:
        raise _invalid(where, "there is no such value")
    return found


def _count(asked: int, where: str, default: int) -> int:
    if asked < 0:
        raise _invalid(where, "must not be negative")
    return asked or default


def _positive_s(duration: Duration, where: str) -> float:
    seconds = duration_s(duration)
    if seconds <= 0:
        raise _invalid(where, "must be positive")
    return seconds


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise _invalid(where, "must be a number")
    return value


def _short(text: str, where: str, limit_bytes: int) -> str:
    if len(text) > limit_bytes or len(text.encode()) > limit_bytes:
        raise _invalid(where, f"is longer than {limit_bytes} bytes")
    return text


def _json_object(text: str, where: str, limit_bytes: int) -> Mapping[str, Any]:
    try:
        value = _loads(_short(text, where, limit_bytes))
    except ValueError:
        raise _invalid(where, "is not JSON, or is nested too deeply") from None
    if not isinstance(value, dict):
        raise _invalid(where, "is no JSON object")
    return value


def _loads(text: str) -> Any:  # noqa: ANN401 - any JSON
    """A value that can be written again, within a request: orjson reads 1,024 levels and writes 254.

    Raises:
        ValueError: there is none.
    """
    value = orjson.loads(text)
    try:
        orjson.dumps([[[[[[[[value]]]]]]]])
    except TypeError as exc:
        raise ValueError from exc
    return value


def _invalid(field: str, problem: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, f"{field}: {problem}", {"field": field}))
