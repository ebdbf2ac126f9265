"""What `fumehood run --json` prints: an object for each event, and the response. Stable: docs/cli.md lists the keys."""

from __future__ import annotations

from fumehood.v1 import orchestration_service_pb2 as pb

from fumehood_server.cli.json_output import JsonObject, error_json, update_json
from fumehood_server.cli.output import json_or_text


def event_json(message: pb.StreamRunResponse) -> JsonObject | None:
    """One event. None: it is one that this version does not know."""
    kind = message.WhichOneof("event")
    if kind is None:
        return None
    return {"event": kind, "sequence": message.sequence or None, **_fields(message, kind)}


def _fields(message: pb.StreamRunResponse, kind: str) -> JsonObject:  # noqa: PLR0911 - one return an event
    match kind:
        case "started":
            started = message.started
            return {"request_id": started.request_id, "joined": started.joined, "resumed": started.resumed}
        case "transition":
            went = message.transition
            return {"from": went.from_state, "to": went.to_state, "attempt": went.attempt, "reason": went.reason}
        case "inference_started":
            asked = message.inference_started
            return {"name": asked.name, "engine": asked.engine, "attempt": asked.attempt}
        case "text":
            return {"inference": message.text.inference, "text": message.text.text}
        case "inference_finished":
            answered = message.inference_finished
            return {
                "name": answered.name,
                "finish_reason": answered.finish_reason,
                "usage": usage_json(answered.usage),
                "error": error_json(answered.error) if answered.HasField("error") else None,
                "retried": answered.retried,
                "recorded": answered.recorded,
            }
        case "tool_started":
            called = message.tool_started
            return {
                "call_id": called.call_id,
                "tool": called.tool,
                "arguments_json": called.arguments_json,
                "inference": called.inference,
            }
        case "tool_update":
            update = update_json(message.tool_update)
            return {"call_id": update.pop("call_id"), "update": update}
        case "tool_finished":
            ended = message.tool_finished
            error = error_json(ended.error) if ended.HasField("error") else None
            return {"call_id": ended.call_id, "tool": ended.tool, "text": ended.text, "error": error}
        case "approval_awaited":
            waits = message.approval_awaited
            return {"approval_id": waits.approval_id, "call_id": waits.call_id, "tool": waits.tool}
    return {"response": response_json(message.finished)}


def response_json(message: pb.SystemResponse) -> JsonObject:
    """How a run ended."""
    return {
        "request_id": message.request_id,
        "session_id": message.session_id,
        "state": message.state,
        "content": message.content,
        "output": json_or_text(message.output_json),
        "tool_calls_made": [
            {
                "call_id": each.call_id,
                "tool": each.tool,
                "tool_use_id": each.tool_use_id,
                "arguments_json": each.arguments_json,
                "error": error_json(each.error) if each.HasField("error") else None,
            }
            for each in message.tool_calls_made
        ],
        "confidence": message.confidence if message.HasField("confidence") else None,
        "confidence_source": message.confidence_source,
        "usage": usage_json(message.usage),
        "plan_trace": json_or_text(message.plan_trace_json),
        "error": error_json(message.error) if message.HasField("error") else None,
    }


def usage_json(message: pb.TokenUsage) -> JsonObject:
    """What models have used."""
    return {
        "input_tokens": message.input_tokens,
        "output_tokens": message.output_tokens,
        "cached_input_tokens": message.cached_input_tokens,
        "cost": message.cost,
        "inferences": message.inferences,
    }
