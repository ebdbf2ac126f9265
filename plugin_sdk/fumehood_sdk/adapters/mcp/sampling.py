"""`sampling/createMessage`: a conversation as an inference request, and the answer as a `CreateMessageResult`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.client_requests import RefusedInput
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_requests import encode_inference_request
from fumehood_sdk.wire.sidecar_answers import InferenceAnswer

_ROLES = {"user": 1, "assistant": 2}
"""By the numbers of `InferenceRole`."""
_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens"}
_U32 = 2**32
_MAX_TEMPERATURE = 100
"""Far above what any engine takes, which refuses the rest."""


def encode(invocation_id: int, request_id: int, params: Mapping[str, Any]) -> bytes:
    """The request as an `InferenceRequest`.

    Raises:
        ValueError: it asks for more than text, or is not what the protocol has.
    """
    messages = params.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("it has no messages")
    if params.get("tools"):
        raise ValueError("it brings tools of its own, which are not offered")
    max_tokens, temperature = params.get("maxTokens"), params.get("temperature")
    if type(max_tokens) is not int or not 0 < max_tokens < _U32:
        raise ValueError("it has no maxTokens")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        raise ValueError("its temperature is no number")
    if temperature is not None and not abs(temperature) <= _MAX_TEMPERATURE:  # NaN compares with nothing
        raise ValueError("its temperature is no number that a model takes")
    system, stops = params.get("systemPrompt") or "", params.get("stopSequences") or []
    if not isinstance(system, str) or not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise ValueError("its systemPrompt or stopSequences are not text")
    return encode_inference_request(
        invocation_id,
        request_id,
        [_message(each) for each in messages],
        system_prompt=system,
        max_tokens=max_tokens,
        temperature=None if temperature is None else float(temperature),
        stop_sequences=stops,
    )


def result(answer: InferenceAnswer) -> bytes | RefusedInput:
    """What the server is told."""
    if answer.reason:
        return RefusedInput(answer.reason, answer.problem)
    told: dict[str, Any] = {
        "role": "assistant",
        "content": {"type": "text", "text": answer.text},
        "model": answer.model,
    }
    if answer.finish_reason:
        told["stopReason"] = _STOP_REASONS.get(answer.finish_reason, answer.finish_reason)
    return dumps(told)


def _message(message: object) -> tuple[int, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str) or role not in _ROLES:
        raise ValueError("a message has no role that is known")
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    texts: list[str] = []
    for block in blocks:
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise ValueError("a message has something other than text, which is not offered")
        texts.append(block["text"])
    return _ROLES[role], "\n".join(texts)
