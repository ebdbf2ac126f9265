"""Answers of models and responses of runs as JSON, which is what the journal keeps of them, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import orjson

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceAnswer
from fumehood_server.orchestration.messages import messages_from_json, messages_to_json
from fumehood_server.orchestration.response import SystemResponse, TokenUsage, ToolCallMade

_MAX_CAUSES = 8


def request_hash(asked: Mapping[str, Any]) -> str:
    """By which a request is known again: SHA-256 of its JSON, sorted.

    Not of RFC 8785's: it has no numbers above 2**53, which a budget or a schema may hold, and takes seconds for 1 MiB.
    """
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


def answer_to_json(answer: InferenceAnswer) -> bytes:
    """What a model answered."""
    return orjson.dumps(
        {
            "message": messages_to_json([answer.message])[0],
            "finish_reason": answer.finish_reason.value,
            "usage": _fields(answer.usage),
            "model": answer.model,
        }
    )


def answer_from_json(data: bytes) -> InferenceAnswer:
    """What `answer_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write that.
    """
    found = orjson.loads(data)
    return InferenceAnswer(
        message=messages_from_json([found["message"]])[0],
        finish_reason=FinishReason(found["finish_reason"]),
        usage=TokenUsage(**found["usage"]),
        model=found["model"],
    )


def error_to_json(error: CallError | None) -> dict[str, Any] | None:
    """An error of a run, with its causes."""
    if error is None:
        return None
    return {
        "code": error.code.value,
        "message": error.message,
        "retryable": error.retryable,
        "details": dict(error.details),
        "caused_by": error_to_json(error.caused_by),
    }


def error_from_json(found: Mapping[str, Any] | None, depth: int = 0) -> CallError | None:
    """What `error_to_json` wrote. Raises as `answer_from_json`."""
    if found is None or depth > _MAX_CAUSES:
        return None
    return CallError(
        code=Code(found["code"]),
        message=found["message"],
        retryable=found["retryable"],
        details=found["details"],
        caused_by=error_from_json(found["caused_by"], depth + 1),
    )


def response_to_json(response: SystemResponse) -> bytes:
    """How a run ended."""
    found = _fields(response)
    found["error"] = error_to_json(response.error)
    found["usage"] = _fields(response.usage)
    found["tool_calls_made"] = [
        {**_fields(made), "error": error_to_json(made.error)} for made in response.tool_calls_made
    ]
    return orjson.dumps(found)


def _fields(value: SystemResponse | ToolCallMade | TokenUsage) -> dict[str, Any]:
    """Without copies, as `asdict` makes them of what details of errors hold: seconds, where those are long."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def response_from_json(data: bytes) -> SystemResponse:
    """What `response_to_json` wrote. Raises as `answer_from_json`."""
    found = orjson.loads(data)
    return SystemResponse(
        **{
            **found,
            "error": error_from_json(found["error"]),
            "usage": TokenUsage(**found["usage"]),
            "tool_calls_made": tuple(
                ToolCallMade(**{**made, "error": error_from_json(made["error"])}) for made in found["tool_calls_made"]
            ),
        }
    )
