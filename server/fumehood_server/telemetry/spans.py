"""Makes OpenTelemetry spans of what has ended. Imports the SDK: for the exporter's thread.

Names and attributes are those of OpenTelemetry's conventions for RPC and GenAI. No span holds arguments, results or
messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from fumehood_server.model.trace import TraceContext
from fumehood_server.telemetry.ended import Ended, EndedCall, EndedInference, EndedRun

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def spans_of(ended: Ended, resource: Resource, scope: InstrumentationScope) -> tuple[ReadableSpan, ...]:
    """The spans of what has ended."""
    match ended:
        case EndedCall():
            return _of_call(ended, resource, scope)
        case EndedInference():
            return (_of_inference(ended, resource, scope),)
        case EndedRun():
            return (_of_run(ended, resource, scope),)


def _of_call(call: EndedCall, resource: Resource, scope: InstrumentationScope) -> tuple[ReadableSpan, ...]:
    """The span of one call, with a child for its wait and one for its attempt."""
    trace = call.trace
    context = _contexts(trace)
    status, error = _status(call.code)
    server = context(trace.span_id)
    whole = ReadableSpan(
        name=trace.method or f"call {call.tool}",
        context=server,
        parent=context(trace.parent_span_id, is_remote=True) if trace.parent_span_id else None,
        kind=SpanKind.SERVER if trace.method else SpanKind.INTERNAL,
        resource=resource,
        instrumentation_scope=scope,
        attributes={
            **_rpc(trace),
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.call_id,
            **error,
        },
        status=status,
        start_time=call.began_ns,
        end_time=call.ended_ns,
    )
    wait = ReadableSpan(
        name="wait",
        # Nobody refers to it, so its identifier need not be known before.
        context=context(f"{int(trace.span_id, 16) ^ int(trace.attempt_span_id, 16) or 1:016x}"),
        parent=server,
        kind=SpanKind.INTERNAL,
        resource=resource,
        instrumentation_scope=scope,
        start_time=call.began_ns,
        end_time=call.dispatched_ns or call.ended_ns,
    )
    if not call.dispatched_ns:
        return whole, wait
    attempt = ReadableSpan(
        name=f"execute_tool {call.tool}",
        context=context(trace.attempt_span_id),
        parent=server,
        kind=SpanKind.INTERNAL,
        resource=resource,
        instrumentation_scope=scope,
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.type": "function",
            "fumehood.attempt": call.attempt,
            "fumehood.plugin": call.plugin,
            "fumehood.worker_id": call.worker_id,
            **error,
        },
        status=status,
        start_time=call.dispatched_ns,
        end_time=call.ended_ns,
    )
    return whole, wait, attempt


def _of_inference(ended: EndedInference, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    context = _contexts(ended.trace)
    status, error = _status(ended.code)
    used = {} if error else {"input": ended.input_tokens, "output": ended.output_tokens}
    return ReadableSpan(
        name=f"chat {ended.request_model}",
        context=context(os.urandom(8).hex()),  # nobody refers to it
        parent=context(ended.trace.span_id),
        kind=SpanKind.CLIENT,
        resource=resource,
        instrumentation_scope=scope,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": ended.provider,
            "gen_ai.request.model": ended.request_model,
            **({"gen_ai.response.model": ended.response_model} if ended.response_model else {}),
            **({"gen_ai.response.finish_reasons": (ended.finish_reason,)} if ended.finish_reason else {}),
            **{f"gen_ai.usage.{name}_tokens": count for name, count in used.items()},
            **_conversation(ended.session_id),
            **error,
        },
        status=status,
        start_time=ended.began_ns,
        end_time=ended.ended_ns,
    )


def _of_run(ended: EndedRun, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    trace = ended.trace
    context = _contexts(trace)
    status, error = _status(ended.code)
    return ReadableSpan(
        name=f"invoke_agent {ended.mode}",
        context=context(trace.span_id),
        parent=context(trace.parent_span_id, is_remote=True) if trace.parent_span_id else None,
        kind=SpanKind.SERVER,
        resource=resource,
        instrumentation_scope=scope,
        attributes={
            **_rpc(trace),
            "gen_ai.operation.name": "invoke_agent",
            "fumehood.request_id": ended.request_id,
            "fumehood.mode": ended.mode,
            **_conversation(ended.session_id),
            **error,
        },
        status=status,
        start_time=ended.began_ns,
        end_time=ended.ended_ns,
    )


def _contexts(trace: TraceContext) -> Callable[..., SpanContext]:
    trace_id = int(trace.trace_id, 16)
    state = TraceState.from_header([trace.state]) if trace.state else None

    def context(span_id: str, *, is_remote: bool = False) -> SpanContext:
        return SpanContext(trace_id, int(span_id, 16), is_remote, _SAMPLED, state)

    return context


def _status(code: str) -> tuple[Status, Mapping[str, str]]:
    if code == "OK":
        return Status(StatusCode.UNSET), {}
    return Status(StatusCode.ERROR), {"error.type": code}


def _rpc(trace: TraceContext) -> Mapping[str, str]:
    """Of what a gRPC request has brought."""
    return {"rpc.system.name": "grpc", "rpc.method": trace.method} if trace.method else {}


def _conversation(session_id: str) -> Mapping[str, str]:
    return {"gen_ai.conversation.id": session_id} if session_id else {}
