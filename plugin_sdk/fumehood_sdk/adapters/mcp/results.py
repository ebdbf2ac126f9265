"""Turns the answers to `tools/call` into results: content blocks, structured content, and typed failures."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.client_requests import (
    CLIENT_FEATURES,
    MAX_MESSAGE_CHARACTERS,
    MAX_SHOWN_REQUESTS,
    refusal,
    shown_request,
)
from fumehood_sdk.adapters.mcp.connection import Message
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_frames import Block, Failure, Sent

MAX_DETAILS_BYTES = 60_000
LINK_TYPE = "application/vnd.modelcontextprotocol.resource-link+json"
"""Media type of a `resource_link`, which is told as the JSON that the server sent."""
INVALID_PARAMS = -32602
ASKABLE = frozenset({"roots/list", *CLIENT_FEATURES})
"""What an `input_required` result may ask for."""


class InvalidResultError(Exception):
    """The server's result is not what the protocol has."""


def convert_answer(answer: Message) -> Sent | Failure:
    """The result of a call. Never raises for what a server sends."""
    result = answer.get("result")
    try:
        if not isinstance(result, dict):
            return rpc_failure(answer.get("error"))
        if result.get("resultType") == "input_required":
            return refused_input(result)
        if result.get("isError") is True:
            return _tool_failure(result)
        content = tuple(content_block(each) for each in _list(result.get("content", [])))
        structured = result.get("structuredContent")
        return content, b"" if structured is None else dumps(structured), False
    except (InvalidResultError, ValueError, RecursionError) as error:
        return malformed(error)


def malformed(error: Exception) -> Failure:
    """What is said of a result that is not what the protocol has."""
    return Failure(f"the MCP server's result is malformed: {error}"[:MAX_MESSAGE_CHARACTERS], "invalid_result")


def refused_input(result: Mapping[str, Any]) -> Failure:
    """What is said of a call whose server asks for what is not offered."""
    requests = result.get("inputRequests")
    asked = [each for each in (requests.values() if isinstance(requests, dict) else ()) if isinstance(each, dict)]
    return refusal([shown_request(str(each.get("method")), each.get("params")) for each in asked[:MAX_SHOWN_REQUESTS]])


def input_required(answer: Message) -> Mapping[str, Any] | None:
    """A result that asks for what can be had, or for nothing and another try. None: any other one."""
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    requests = result.get("inputRequests") or {}
    if not isinstance(requests, dict):
        return None
    known = all(isinstance(each, dict) and each.get("method") in ASKABLE for each in requests.values())
    return result if known else None


def content_block(block: object) -> Block:
    """A content block as ours.

    Raises:
        InvalidResultError: it is not what the protocol has.
    """
    if not isinstance(block, dict):
        raise InvalidResultError("a content block is no object")
    kind = block.get("type")
    if kind == "text":
        return _text(block)
    if kind in ("image", "audio"):
        return _data(block, "data"), _media_type(block)
    if kind == "resource":
        resource = block.get("resource")
        if not isinstance(resource, dict):
            raise InvalidResultError("an embedded resource is no object")
        if "blob" in resource:
            return _data(resource, "blob"), _media_type(resource)
        return _text(resource)
    return dumps(block), LINK_TYPE if kind == "resource_link" else "application/json"


def _text(block: Mapping[str, Any]) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise InvalidResultError("a text is missing")
    return text


def _data(block: Mapping[str, Any], key: str) -> bytes:
    data = block.get(key)
    if not isinstance(data, str):
        raise InvalidResultError(f"`{key}` is missing")
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except binascii.Error as error:
        raise InvalidResultError(f"`{key}` is not base64: {error}") from error


def _media_type(block: Mapping[str, Any]) -> str:
    media_type = block.get("mimeType")
    return media_type if isinstance(media_type, str) else ""


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidResultError("`content` is no list")
    return value


def _tool_failure(result: Mapping[str, Any]) -> Failure:
    texts = [
        each["text"]
        for each in _list(result.get("content", []))
        if isinstance(each, dict) and isinstance(each.get("text"), str)
    ]
    structured = result.get("structuredContent")
    details = {} if structured is None else {"structured_content": structured}
    return Failure(
        _cut("\n".join(texts)) or "the tool failed and does not say why", "tool_error", details_json=_details(details)
    )


def rpc_failure(error: object) -> Failure:
    """A JSON-RPC error as a typed failure.

    Raises:
        InvalidResultError: there is none.
    """
    if not isinstance(error, dict):
        raise InvalidResultError("it is neither a result nor an error")
    code, message = error.get("code"), error.get("message")
    text = _cut(message) if isinstance(message, str) and message else "the MCP server refused the call"
    details = {"code": code, **({"data": error["data"]} if "data" in error else {})}
    return Failure(text, "invalid_params" if code == INVALID_PARAMS else "mcp_error", details_json=_details(details))


def _details(details: Mapping[str, Any]) -> bytes:
    text = dumps(details) if details else b""
    return text if len(text) <= MAX_DETAILS_BYTES else b""


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else message[: MAX_MESSAGE_CHARACTERS - 1] + "…"
