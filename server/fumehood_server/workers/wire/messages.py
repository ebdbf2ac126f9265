"""Between the wire's protobuf messages and the sidecar's own nouns. No other module of the workers builds a message."""

from __future__ import annotations

import importlib.metadata
import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson
from fumehood.v1 import plugin_pb2, tool_pb2

from fumehood_server.model.call import CallError, CallUpdate
from fumehood_server.model.content_messages import read_block
from fumehood_server.model.inferences import (
    MAX_MESSAGES,
    MAX_STOP_SEQUENCES,
    AskedInference,
    GivenInference,
)
from fumehood_server.model.json_depth import is_deeper
from fumehood_server.model.plugin_requests import MAX_HEADER_FIELDS, OutboundRequest
from fumehood_server.model.questions import Answer, AnswerAction, Question
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason, InvocationResult
from fumehood_server.workers.wire import prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fumehood_server.errors import PluginRequestError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import InboundResponse
    from fumehood_server.model.worker import Invocation

PROTOCOL_VERSIONS = (1,)
"""Versions of the wire that this sidecar speaks, best first."""

MAX_LINE_BYTES = 8192
"""One line of an update or of the log, in bytes of UTF-8 (plugin.proto)."""

MAX_UPDATE_DATA_BYTES = 65_536
"""`Update.data_json` (plugin.proto)."""

MAX_UNIT_BYTES = 64
"""`Update.unit` (plugin.proto)."""

MAX_BLOCKS = 1024
"""`Result.content` (plugin.proto)."""

MAX_TOOLS = 1024
"""`Ready.tools` (plugin.proto)."""

MAX_FAILURE_CHARACTERS = 4096
"""`ToolFailure.message` (plugin.proto)."""

MAX_FAILURE_DETAILS_BYTES = 60_000
"""`ToolFailure.details_json`, so that with our own keys it fits into `SystemError.details_json` (error.proto)."""

MAX_FAILURE_DEPTH = 64
"""Nesting of `ToolFailure.details_json` (plugin.proto), as of arguments and results."""

_ANSWERS = {
    AnswerAction.ACCEPT: tool_pb2.ANSWER_ACTION_ACCEPT,
    AnswerAction.DECLINE: tool_pb2.ANSWER_ACTION_DECLINE,
    AnswerAction.CANCEL: tool_pb2.ANSWER_ACTION_CANCEL,
}
_ROLES = {plugin_pb2.INFERENCE_ROLE_USER: "user", plugin_pb2.INFERENCE_ROLE_ASSISTANT: "assistant"}
_REASONS = {
    CancelReason.DEADLINE: plugin_pb2.CANCEL_REASON_DEADLINE,
    CancelReason.CALLER: plugin_pb2.CANCEL_REASON_CALLER,
    CancelReason.SHUTDOWN: plugin_pb2.CANCEL_REASON_SHUTDOWN,
    CancelReason.LIMIT: plugin_pb2.CANCEL_REASON_LIMIT,
}

_NANOS = 1_000_000_000


def hello(spec: WorkerSpec, *, max_frame_bytes: int, secrets: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """The first frame to a worker. `secrets` are values by name, for a kind whose processes get them at their start."""
    frame = plugin_pb2.HostFrame()
    message = frame.hello
    message.protocol_versions.extend(PROTOCOL_VERSIONS)
    message.sidecar_version = importlib.metadata.version("fumehood-server")
    message.plugin = spec.plugin
    message.side_effects = SIDE_EFFECTS[spec.policy.level]
    message.max_frame_bytes = max_frame_bytes
    message.max_concurrent_calls = spec.max_concurrent_calls
    message.readable_paths.extend(spec.policy.read)
    message.writable_paths.extend(spec.policy.write)
    message.takes_inferences = bool(spec.engine)
    for name, value in secrets.items():
        message.secrets.add(name=name, value=value)
    return prefixed(frame.SerializeToString())


def invoke(invocation_id: int, invocation: Invocation) -> bytes:
    """The frame that starts a call, or has its arguments prepared."""
    frame = plugin_pb2.HostFrame()
    message: plugin_pb2.Invoke | plugin_pb2.PrepareArguments
    message = frame.prepare_arguments if invocation.prepares else frame.invoke
    message.invocation_id = invocation_id
    message.tool = invocation.tool
    message.arguments_json = invocation.arguments_json
    message.call_id = invocation.call_id
    timeout = message.timeout
    # A deadline that has just passed is still a deadline: the plugin reads "no time left", not "no bound".
    timeout.seconds, timeout.nanos = divmod(max(int(invocation.timeout_s * _NANOS), 1), _NANOS)
    ours = invocation.context
    context = message.context
    context.request_id = ours.request_id
    # Most callers fill few of these, and looking costs a third of setting.
    if ours.session_id:
        context.session_id = ours.session_id
    if ours.trace_id:
        context.trace_id = ours.trace_id
    if ours.span_id:
        context.span_id = ours.span_id
    if ours.parent_span_id:
        context.parent_span_id = ours.parent_span_id
    if ours.turn_id:
        context.turn_id = ours.turn_id
    if ours.step_name:
        context.step_name = ours.step_name
    if ours.caused_by:
        context.caused_by = ours.caused_by
    if isinstance(message, plugin_pb2.Invoke):
        message.attempt = invocation.attempt
        if invocation.max_recorded_bytes:
            message.max_recorded_bytes = invocation.max_recorded_bytes
        _set_what_few_have(message, invocation)
    return prefixed(frame.SerializeToString())


def _set_what_few_have(message: plugin_pb2.Invoke, invocation: Invocation) -> None:
    trace, replay = invocation.trace, invocation.replay
    if trace is not None:
        message.traceparent, message.tracestate = trace.traceparent, trace.state
    if replay is not None:
        message.replay.SetInParent()
        message.replay.values.extend(plugin_pb2.RecordedValue(**each._asdict()) for each in replay.values)


def cancel(invocation_id: int, reason: CancelReason, grace_s: float) -> bytes:
    """The frame that asks for the end of a call."""
    frame = plugin_pb2.HostFrame()
    frame.cancel.invocation_id = invocation_id
    frame.cancel.reason = _REASONS[reason]
    frame.cancel.grace.FromNanoseconds(int(grace_s * _NANOS))
    return prefixed(frame.SerializeToString())


def shutdown(grace_s: float) -> bytes:
    """The frame that asks a worker to exit."""
    frame = plugin_pb2.HostFrame()
    frame.shutdown.grace.FromNanoseconds(int(grace_s * _NANOS))
    return prefixed(frame.SerializeToString())


def secret_response(invocation_id: int, request_id: int, *, value: bytes = b"", problem: str = "") -> bytes:
    """The frame that answers for a secret: with its value, or with why there is none."""
    frame = plugin_pb2.HostFrame()
    message = frame.secret_response
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.value = value
    message.problem = problem
    return prefixed(frame.SerializeToString())


def asked_question(message: plugin_pb2.Question) -> Question:
    """A plugin's question, as it is."""
    return Question(message.message, message.schema_json, message.name)


def answer(invocation_id: int, request_id: int, given: Answer) -> bytes:
    """The frame with a person's answer."""
    frame = plugin_pb2.HostFrame()
    message = frame.answer
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.action = _ANSWERS[given.action]
    message.content_json = given.content_json
    return prefixed(frame.SerializeToString())


def no_answer(invocation_id: int, request_id: int, error: PluginRequestError) -> bytes:
    """The frame that says why a question has no answer."""
    frame = plugin_pb2.HostFrame()
    message = frame.answer
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.reason = error.reason
    message.problem = error.message
    return prefixed(frame.SerializeToString())


def asked_inference(message: plugin_pb2.InferenceRequest) -> AskedInference:
    """A plugin's request for a model's answer, as it is. Of too many of a thing so many are left that it is refused."""
    return AskedInference(
        messages=tuple((_ROLES.get(each.role, ""), each.text) for each in message.messages[: MAX_MESSAGES + 1]),
        system_prompt=message.system_prompt,
        max_tokens=message.max_tokens,
        temperature=message.temperature if message.HasField("temperature") else None,
        stop_sequences=tuple(message.stop_sequences[: MAX_STOP_SEQUENCES + 1]),
    )


def inference_response(invocation_id: int, request_id: int, given: GivenInference) -> bytes:
    """The frame with a model's answer."""
    frame = plugin_pb2.HostFrame()
    message = frame.inference_response
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.text = given.text
    message.model = given.model
    message.finish_reason = given.finish_reason
    return prefixed(frame.SerializeToString())


def no_inference(invocation_id: int, request_id: int, error: PluginRequestError) -> bytes:
    """The frame that says why no model has answered."""
    frame = plugin_pb2.HostFrame()
    message = frame.inference_response
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.reason = error.reason
    message.problem = error.message
    message.retryable = error.retryable
    return prefixed(frame.SerializeToString())


def http_ask(message: plugin_pb2.HttpRequest) -> OutboundRequest:
    """A plugin's request, as it is. Of too many header fields so many are left that it is refused for them."""
    return OutboundRequest(
        method=message.method,
        url=message.url,
        headers=tuple((header.name, header.value) for header in message.headers[: MAX_HEADER_FIELDS + 1]),
        body=message.body,
        timeout_s=message.timeout.ToNanoseconds() / _NANOS if message.HasField("timeout") else None,
        max_response_bytes=message.max_response_bytes or None,
        max_redirects=message.max_redirects if message.HasField("max_redirects") else None,
    )


def http_response(invocation_id: int, request_id: int, answer: InboundResponse) -> bytes:
    """The frame with a response's head."""
    frame = plugin_pb2.HostFrame()
    message = frame.http_response
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.status = answer.status
    message.url = answer.url
    message.redirects = answer.redirects
    for name, value in answer.headers:
        message.headers.add(name=name, value=value)
    return prefixed(frame.SerializeToString())


def http_body(invocation_id: int, request_id: int, data: bytes, *, end: bool) -> bytes:
    """The frame with a piece of a response's body."""
    frame = plugin_pb2.HostFrame()
    message = frame.http_body
    message.invocation_id = invocation_id
    message.request_id = request_id
    message.data = data
    message.end = end
    return prefixed(frame.SerializeToString())


def http_failure(invocation_id: int, request_id: int, error: PluginRequestError, *, after_head: bool) -> bytes:
    """The frame that says why there is no response, or, after its head, no more of its body."""
    frame = plugin_pb2.HostFrame()
    message = frame.http_body if after_head else frame.http_response
    message.invocation_id = invocation_id
    message.request_id = request_id
    if after_head:
        frame.http_body.end = True
    message.failure.reason = error.reason
    message.failure.message = error.message
    message.failure.retryable = error.retryable
    return prefixed(frame.SerializeToString())


def result(message: plugin_pb2.Result, *, output_bytes: int) -> InvocationResult:
    """A plugin's own word on how a call ended. `output_bytes` counts the call's frames."""
    blocks = message.content
    if len(blocks) > MAX_BLOCKS:
        return InvocationResult(
            content=(),
            details_json="",
            terminate=False,
            error=_too_many_blocks(len(blocks)),
            output_bytes=output_bytes,
        )
    return InvocationResult(
        content=tuple([block for block in map(read_block, blocks) if block is not None]),
        details_json=message.details_json,
        terminate=message.terminate,
        error=_failure(message.error) if message.HasField("error") else None,
        output_bytes=output_bytes,
    )


def update(message: plugin_pb2.Update, sequence: int) -> CallUpdate:
    """A plugin's word on a call that goes on, cut to the wire's limits. A number that is none counts as absent."""
    data = message.data_json
    return CallUpdate(
        message=cut(message.message, MAX_LINE_BYTES),
        progress=message.progress if message.HasField("progress") and math.isfinite(message.progress) else None,
        total=message.total if message.HasField("total") and math.isfinite(message.total) else None,
        data_json=data if len(data) * 4 <= MAX_UPDATE_DATA_BYTES or len(data.encode()) <= MAX_UPDATE_DATA_BYTES else "",
        sequence=sequence,
        unit=cut(message.unit, MAX_UNIT_BYTES),
    )


def cut(text: str, limit_bytes: int) -> str:
    """The longest beginning of `text` that takes at most `limit_bytes` in UTF-8."""
    if len(text) * 4 <= limit_bytes:
        return text
    # Each character takes a byte at least. Hostile text of megabytes is not encoded for the sake of its beginning.
    text = text[:limit_bytes]
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit_bytes else data[:limit_bytes].decode("utf-8", "ignore")


def _too_many_blocks(count: int) -> CallError:
    return CallError(
        code=Code.TOOL_RESOURCE_EXHAUSTED,
        message=f"the tool's result has {count} blocks of content, and at most {MAX_BLOCKS} are passed on",
        details={"limit": "content_blocks", "value": MAX_BLOCKS, "usage": count, "unit": "blocks"},
    )


def _failure(failure: plugin_pb2.ToolFailure) -> CallError:
    details: dict[str, object] = {}
    if failure.details_json:
        details |= _facts(failure.details_json)
    if failure.reason:
        details["reason"] = failure.reason[:128]
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=failure.message[:MAX_FAILURE_CHARACTERS] or "the tool failed and did not say why",
        retryable=failure.retryable,
        details=details,
    )


def _facts(text: str) -> dict[str, object]:
    """A failure's own facts. What is not a JSON object, or too long, is left out, and that is told."""
    if len(text.encode("utf-8", "replace")) > MAX_FAILURE_DETAILS_BYTES:
        return {"details_left_out": "too long"}
    try:
        facts = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {"details_left_out": "not JSON"}
    if not isinstance(facts, dict):
        return {"details_left_out": "not an object"}
    # The writer of JSON refuses what its reader takes, and callers' readers recurse as well.
    return {"details_left_out": "nested too deeply"} if is_deeper(facts, MAX_FAILURE_DEPTH) else facts
