"""Makes OpenTelemetry spans of calls that have ended. Imports the SDK: for the exporter's thread."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from fumehood_server.telemetry.call_observer import EndedCall

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def spans_of(call: EndedCall, resource: Resource, scope: InstrumentationScope) -> tuple[ReadableSpan, ...]:
    """The server span of one call, with a child for its wait and one for its attempt.

    No span holds arguments or results.
    """
    trace = call.trace
    trace_id = int(trace.trace_id, 16)
    state = TraceState.from_header([trace.state]) if trace.state else None

    def context(span_id: str, *, is_remote: bool = False) -> SpanContext:
        return SpanContext(trace_id, int(span_id, 16), is_remote, _SAMPLED, state)

    failed = call.code != "OK"
    status = Status(StatusCode.ERROR) if failed else Status(StatusCode.UNSET)
    error = {"error.type": call.code} if failed else {}
    server = context(trace.span_id)
    whole = ReadableSpan(
        name=trace.method,
        context=server,
        parent=context(trace.parent_span_id, is_remote=True) if trace.parent_span_id else None,
        kind=SpanKind.SERVER,
        resource=resource,
        instrumentation_scope=scope,
        attributes={
            "rpc.system.name": "grpc",
            "rpc.method": trace.method,
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
