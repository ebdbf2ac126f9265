"""Answers of models and responses of runs as JSON, which is what the journal keeps of them, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from fumehood_server.model.call import CallError
from fumehood_server.model.events import Document
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceAnswer, InferenceRequest, OfferedTool
from fumehood_server.orchestration.messages import messages_from_json, messages_to_json
from fumehood_server.orchestration.response import SystemResponse, TokenUsage, ToolCallMade

_MAX_CAUSES = 8


def input_hash(request: InferenceRequest) -> str:
    """By which an inference is known again: SHA-256 of what is asked, but for how and with which tools."""
    asked = {
        "messages": messages_to_json(request.messages),
        "schema": None
        if request.schema is None
        else orjson.dumps(request.schema, option=orjson.OPT_SORT_KEYS).decode(),
        "grammar": request.grammar,
    }
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


def request_hash(fields: Mapping[str, Any]) -> str:
    """By which a request is known again: SHA-256 of its JSON, sorted.

    Not of RFC 8785's: it has no numbers above 2**53, which a budget or a schema may hold, and takes seconds for 1 MiB.
    """
    return hashlib.sha256(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).hexdigest()


def answer_to_json(answer: InferenceAnswer) -> bytes:
    """What a model answered."""
    return orjson.dumps(
        {
            "message": messages_to_json([answer.message])[0],
            "finish_reason": answer.finish_reason.value,
            "usage": asdict(answer.usage),
            "model": answer.model,
        }
    )


def answer_from_json(data: bytes) -> InferenceAnswer:
    """What `answer_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it did not write that.
    """
    fields = orjson.loads(data)
    return InferenceAnswer(
        message=messages_from_json([fields["message"]])[0],
        finish_reason=FinishReason(fields["finish_reason"]),
        usage=TokenUsage(**fields["usage"]),
        model=fields["model"],
    )


def tools_document(tools: Iterable[OfferedTool]) -> Document:
    """What a model is offered, as a document: most runs are offered the same."""
    data = orjson.dumps([asdict(each) for each in tools], option=orjson.OPT_SORT_KEYS)
    return Document(hashlib.sha256(data).digest(), data)


def tools_from_document(data: bytes) -> tuple[OfferedTool, ...]:
    """What `tools_document` wrote. Raises as `answer_from_json`."""
    return tuple(OfferedTool(**each) for each in orjson.loads(data))


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


def error_from_json(fields: Mapping[str, Any] | None, depth: int = 0) -> CallError | None:
    """What `error_to_json` wrote. Raises as `answer_from_json`."""
    if fields is None or depth > _MAX_CAUSES:
        return None
    return CallError(
        code=Code(fields["code"]),
        message=fields["message"],
        retryable=fields["retryable"],
        details=fields["details"],
        caused_by=error_from_json(fields["caused_by"], depth + 1),
    )


def response_to_json(response: SystemResponse) -> bytes:
    """How a run ended."""
    fields = asdict(response)
    fields["error"] = error_to_json(response.error)
    fields["tool_calls_made"] = [
        {**asdict(made), "error": error_to_json(made.error)} for made in response.tool_calls_made
    ]
    return orjson.dumps(fields)


def response_from_json(data: bytes) -> SystemResponse:
    """What `response_to_json` wrote. Raises as `answer_from_json`."""
    fields = orjson.loads(data)
    return SystemResponse(
        **{
            **fields,
            "error": error_from_json(fields["error"]),
            "usage": TokenUsage(**fields["usage"]),
            "tool_calls_made": tuple(
                ToolCallMade(**{**made, "error": error_from_json(made["error"])}) for made in fields["tool_calls_made"]
            ),
        }
    )
