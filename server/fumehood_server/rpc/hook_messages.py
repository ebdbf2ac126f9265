"""Questions to hooks and their answers as messages."""

from __future__ import annotations

from fumehood.v1 import hook_service_pb2 as pb
from fumehood.v1 import tool_pb2
from fumehood_sandbox import Level

from fumehood_server.hooks import HookChain, Question, UnaskedError
from fumehood_server.model.content_messages import fill_block, read_block
from fumehood_server.model.durations import set_duration
from fumehood_server.model.hooks import (
    MAX_REASON_BYTES,
    Allow,
    Answer,
    ChangeArguments,
    ChangeResult,
    Deny,
    HookConfig,
    HookKind,
    MiddlewareConfig,
    Stage,
    WhenGone,
)
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.rpc.result_messages import error_message

MAX_BLOCKS = 1_280
"""A quarter more than a tool may return."""
MAX_FIELDS = 13_312
"""Fields of a long answer: as many blocks of which everything is said have 12,800."""


def question_message(question: Question) -> pb.InterceptResponse:
    """The question as it is sent."""
    call = question.call
    asked = pb.HookQuestion(question_id=question.question_id)
    set_duration(asked.timeout, question.left_s)
    asked.call.call_id = call.call_id
    asked.call.tool = call.tool
    asked.call.plugin = call.plugin
    asked.call.side_effects = SIDE_EFFECTS[Level(call.side_effects)]
    asked.call.idempotent = call.idempotent
    asked.call.arguments_json = _text(question.arguments_json)
    asked.call.caller = call.caller.name
    asked.call.authenticated_by = call.caller.authenticated_by.value
    asked.call.context.CopyFrom(tool_pb2.CallContext(**call.context.given()))
    result = question.result
    if result is not None:
        into = asked.result
        for block in result.content:
            fill_block(into.content.add(), block)
        into.details_json = _text(result.details_json)
        into.terminate = result.terminate
        if result.error is not None:
            into.error.CopyFrom(error_message(result.error))
    return pb.InterceptResponse(question=asked)


def read_answer(message: pb.HookAnswer, stage: Stage) -> Answer:
    """The answer to a question of this stage.

    Raises:
        UnaskedError: it is none.
    """
    kind = message.WhichOneof("answer")
    if kind == "allow":
        return Allow()
    if kind == "deny":
        return Deny(_reason(message.deny.reason))
    if kind == "change_arguments" and stage is Stage.BEFORE:
        changed = message.change_arguments
        return ChangeArguments(changed.arguments_json, _reason(changed.reason))
    if kind == "change_result" and stage is Stage.AFTER:
        return _changed_result(message.change_result)
    words = "has no answer that is known here" if kind is None else f"can't be answered by {kind} {stage} the call"
    raise UnaskedError(f"question {message.question_id} {words}")


def _changed_result(message: pb.HookChangeResult) -> ChangeResult:
    output = None
    if message.HasField("output"):
        if len(message.output.content) > MAX_BLOCKS:
            raise UnaskedError(f"output.content has more than {MAX_BLOCKS:,} blocks")
        blocks = tuple(block for each in message.output.content if (block := read_block(each)) is not None)
        output = (blocks, message.output.details_json)
    terminate = message.terminate if message.HasField("terminate") else None
    return ChangeResult(output=output, terminate=terminate, reason=_reason(message.reason))


def _reason(reason: str) -> str:
    if len(reason.encode()) > MAX_REASON_BYTES:
        raise UnaskedError(f"reason is longer than {MAX_REASON_BYTES:,} bytes")
    return reason


def _text(text: str) -> str:
    """Without halves of surrogate pairs, which protobuf's strings can't hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def listed_hooks(chain: HookChain) -> pb.ListHooksResponse:
    """All of them, as they are now."""
    response = pb.ListHooksResponse()
    for middleware in chain.middleware:
        message = _hook(response.hooks.add(), middleware.config)
        message.kind, message.connections = HookKind.MIDDLEWARE.value, 1
        message.stages.extend(each.value for each in Stage)
        message.when_gone = WhenGone.DENY.value
    for served in chain.registry.hooks:
        message = _hook(response.hooks.add(), served.config)
        message.kind, message.connections = HookKind.HOOK.value, len(served.connections)
        message.stages.extend(each.value for each in served.config.stages)
        message.when_gone = served.config.when_gone.value
        message.served_by.extend(each.by.recorded for each in served.connections)
    return response


def _hook(message: pb.Hook, config: HookConfig | MiddlewareConfig) -> pb.Hook:
    message.name = config.name
    set_duration(message.timeout, config.timeout_s)
    matchers = config.matchers
    message.tools.extend(matchers.tools)
    message.plugins.extend(matchers.plugins)
    message.side_effects.extend(matchers.side_effects)
    message.callers.extend(matchers.callers)
    return message
