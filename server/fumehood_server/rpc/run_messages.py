"""Turns what happens in runs, and how they end, into messages."""

from __future__ import annotations

from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1 import tool_pb2

from fumehood_server.orchestration.happenings import (
    ApprovalAwaited,
    Happening,
    InferenceFinished,
    InferenceStarted,
    TextPiece,
    ToolFinished,
    ToolSaid,
    ToolStarted,
)
from fumehood_server.orchestration.lifecycle import Transition
from fumehood_server.orchestration.response import SystemResponse, TokenUsage
from fumehood_server.rpc.result_messages import error_message, update_message


def response_message(response: SystemResponse) -> pb.SystemResponse:
    """How a run ended."""
    message = pb.SystemResponse(
        request_id=response.request_id,
        session_id=response.session_id,
        content=response.content,
        output_json=response.output_json,
        confidence=response.confidence,
        confidence_source=response.confidence_source,
        usage=_usage(response.usage),
        plan_trace_json=response.plan_trace_json,
        state=response.state,
    )
    for made in response.tool_calls_made:
        message.tool_calls_made.add(
            call_id=made.call_id,
            tool=made.tool,
            tool_use_id=made.tool_use_id,
            arguments_json=made.arguments_json,
            error=None if made.error is None else error_message(made.error),
        )
    if response.error is not None:
        message.error.CopyFrom(error_message(response.error))
    return message


def happening_message(sequence: int, happening: Happening) -> pb.StreamRunResponse:
    """What happened."""
    message = pb.StreamRunResponse(sequence=sequence)
    match happening:
        case Transition():
            message.transition.from_state = happening.before.value
            message.transition.to_state = happening.after.value
            message.transition.attempt = happening.attempt
            message.transition.reason = happening.reason
        case InferenceStarted():
            message.inference_started.name = happening.name
            message.inference_started.engine = happening.engine
            message.inference_started.attempt = happening.attempt
        case TextPiece():
            message.text.inference = happening.inference
            message.text.text = happening.text
        case InferenceFinished():
            message.inference_finished.CopyFrom(_inference_finished(happening))
        case ToolStarted():
            message.tool_started.call_id = happening.call_id
            message.tool_started.tool = happening.tool
            message.tool_started.arguments_json = happening.arguments_json
            message.tool_started.inference = happening.inference
        case ToolSaid():
            message.tool_update.CopyFrom(update_message(happening.call_id, happening.update))
        case ToolFinished():
            message.tool_finished.call_id = happening.call_id
            message.tool_finished.tool = happening.tool
            message.tool_finished.text = happening.text
            if happening.error is not None:
                message.tool_finished.error.CopyFrom(error_message(happening.error))
        case ApprovalAwaited():
            message.approval_awaited.CopyFrom(
                tool_pb2.ApprovalAwaited(
                    approval_id=happening.approval_id, call_id=happening.call_id, tool=happening.tool
                )
            )
    return message


def _inference_finished(happening: InferenceFinished) -> pb.InferenceFinished:
    return pb.InferenceFinished(
        name=happening.name,
        finish_reason=happening.finish_reason,
        usage=_usage(happening.usage),
        error=None if happening.error is None else error_message(happening.error),
        retried=happening.retried,
        recorded=happening.recorded,
    )


def _usage(usage: TokenUsage) -> pb.TokenUsage:
    return pb.TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cost=usage.cost,
        inferences=usage.inferences,
    )
