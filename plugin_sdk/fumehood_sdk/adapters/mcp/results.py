"""Turns the answers to `tools/call` into results: content blocks, structured content, and typed failures."""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from fumehood_sdk.adapters.mcp.client_requests import (
    CLIENT_FEATURES,
    MAX_SHOWN_REQUESTS,
    refusal,
    shown_request,
)
from fumehood_sdk.adapters.mcp.messages import Message, one_line, problem_of, shown
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_frames import (
    Annotations,
    Block,
    DescribedBlock,
    Failure,
    Sent,
    cut_failure_message,
    encode_result,
)

MAX_DETAILS_BYTES = 60_000
MAX_BLOCKS = 1024
"""Of a result: plugin.proto."""
MAX_FAILURE_CONTENT_BYTES = 3 * 1024 * 1024
"""Of what is shown beside a failure: as much as an operator can allow of a result, and less than a frame may have."""
MAX_URI_CHARACTERS = 8192
MAX_MEDIA_TYPE_CHARACTERS = 255
MAX_TIME_CHARACTERS = 64
LINK_TYPE = "application/vnd.modelcontextprotocol.resource-link+json"
"""Media type of a `resource_link`, which is told as the JSON that the server sent."""
ROLES = ("user", "assistant")
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
            return rpc_failure(answer)
        if asks_for_input(result):
            return refused_answer(answer)
        if result.get("isError") is True:
            return _tool_failure(result)
        structured = result.get("structuredContent")
        content = result.get("content")
        if content is None and structured is not None:  # required as well, and some servers leave it out
            content = []
        blocks = tuple(content_block(each) for each in _list(content))
        return blocks, b"" if structured is None else _structured(structured), False
    except (InvalidResultError, ValueError, RecursionError) as error:
        return malformed(error)


def asks_for_input(result: Mapping[str, Any]) -> bool:
    """Whether a result is no final one, and asks for something. One that names no type is final (2026-07-28).

    Raises:
        InvalidResultError: it is of a type that nobody has asked for, such as a task, and is none by the protocol.
    """
    kind = result.get("resultType")
    if kind is not None and kind not in ("complete", "input_required"):
        raise InvalidResultError(f"its `resultType` is {shown(kind)}, and only complete and input_required are known")
    return kind == "input_required"


def _structured(value: object) -> bytes:
    """Structured content as JSON.

    Raises:
        InvalidResultError: it holds what JSON can't.
    """
    written = dumps(value)
    if b"null" in written:  # which `dumps` writes for numbers that JSON lacks, too
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise InvalidResultError("`structuredContent` holds a number that is not finite") from error
    return written


def malformed(error: Exception) -> Failure:
    """What is said of a result that is not what the protocol has."""
    return Failure(f"the MCP server's result is malformed: {one_line(error)}", "invalid_result")


def refused_answer(answer: Message) -> Failure:
    """What is said of a call whose server asks for what is not offered.

    Raises:
        InvalidResultError: what it asks for can't be told.
    """
    if (problem := problem_of(answer)) is not None:
        raise InvalidResultError(problem)
    return refusal(_shown_requests(answer["result"]))


def too_many_rounds(result: Mapping[str, Any], most: int) -> Failure:
    """What is said of a call whose server has asked for something, or for nothing and another try, too often."""
    text = f"the tool asked its client more than {most} times in one call"
    return Failure(text, "input_refused", details_json=dumps({"requests": _shown_requests(result)}))


def _shown_requests(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    requests = result.get("inputRequests")
    asked = [each for each in (requests.values() if isinstance(requests, dict) else ()) if isinstance(each, dict)]
    return [shown_request(shown(each.get("method")), each.get("params")) for each in asked[:MAX_SHOWN_REQUESTS]]


def input_required(answer: Message) -> Mapping[str, Any] | None:
    """A result that asks for what can be had, or for nothing and another try. None: any other one."""
    result = answer.get("result")
    if not isinstance(result, dict) or result.get("resultType") != "input_required" or problem_of(answer) is not None:
        return None
    requests = result.get("inputRequests") or {}
    if not isinstance(requests, dict):
        return None
    return result if all(_is_askable(each) for each in requests.values()) else None


def _is_askable(request: object) -> bool:
    method = request.get("method") if isinstance(request, dict) else None
    return isinstance(method, str) and method in ASKABLE


def content_block(block: object) -> Block:
    """A content block as ours.

    Raises:
        InvalidResultError: it is not what the protocol has.
    """
    if not isinstance(block, dict):
        raise InvalidResultError("a content block is no object")
    annotations = _annotations(block.get("annotations"))
    kind = block.get("type")
    if kind == "resource":
        return _embedded(block.get("resource"), annotations)
    if kind == "resource_link":
        return _described((dumps(block), LINK_TYPE), annotations, resource_uri=_uri(block))
    if kind == "text":
        return _described(_text(block), annotations)
    if kind in ("image", "audio"):
        return _described((_data(block, "data"), _media_type(block)), annotations)
    return dumps(block), "application/json"


def _embedded(resource: object, annotations: Annotations | None) -> Block:
    if not isinstance(resource, dict):
        raise InvalidResultError("an embedded resource is no object")
    uri, media_type = _uri(resource), _media_type(resource)
    if "blob" in resource:
        return _described((_data(resource, "blob"), media_type), annotations, resource_uri=uri)
    return _described(_text(resource), annotations, resource_uri=uri, text_media_type=media_type)


def _described(
    block: str | tuple[bytes, str],
    annotations: Annotations | None,
    *,
    resource_uri: str = "",
    text_media_type: str = "",
) -> Block:
    if annotations is None and not resource_uri and not text_media_type:
        return block
    return DescribedBlock(block, resource_uri=resource_uri, text_media_type=text_media_type, annotations=annotations)


def _annotations(given: object) -> Annotations | None:
    """Those of the protocol, of which what is none is left out. None: there are none."""
    if not isinstance(given, dict):
        return None
    audience, modified = given.get("audience"), given.get("lastModified")
    made = Annotations(
        tuple(each for each in ROLES if isinstance(audience, list) and each in audience),
        _priority(given.get("priority")),
        modified if _is_printable(modified, MAX_TIME_CHARACTERS) else "",
    )
    return made if made != Annotations() else None


def _priority(given: object) -> float | None:
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= 1:
        return None
    return float(given)


def _uri(block: Mapping[str, Any]) -> str:
    """Empty where there is none that can be passed on: what it stands beside is shown all the same."""
    uri = block.get("uri")
    return uri if _is_printable(uri, MAX_URI_CHARACTERS) else ""


def _is_printable(text: object, most: int) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= most and text.isprintable()


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
    return media_type[:MAX_MEDIA_TYPE_CHARACTERS] if isinstance(media_type, str) else ""


def _list(value: object) -> list[Any]:
    if value is None:
        raise InvalidResultError("it has no `content`")
    if not isinstance(value, list):
        raise InvalidResultError("`content` is no list")
    return value


def _tool_failure(result: Mapping[str, Any]) -> Failure:
    content = _list(result.get("content", []))
    texts = [each["text"] for each in content if isinstance(each, dict) and isinstance(each.get("text"), str)]
    structured = result.get("structuredContent")
    details = {} if structured is None else {"structured_content": structured}
    return Failure(
        cut_failure_message("\n".join(texts)) or "the tool failed and does not say why",
        "tool_error",
        details_json=_details(details),
        content=_shown_beside(content),
    )


def _shown_beside(content: list[Any]) -> tuple[Block, ...]:
    """What a tool that failed shows. Nothing where it is malformed or too much: that would hide why it failed."""
    try:
        blocks = tuple(content_block(each) for each in content[: MAX_BLOCKS + 1])
    except (InvalidResultError, ValueError, RecursionError):
        return ()
    size = len(encode_result(0, blocks, b"", terminate=False))
    return blocks if len(blocks) <= MAX_BLOCKS and size <= MAX_FAILURE_CONTENT_BYTES else ()


def rpc_failure(answer: Message) -> Failure:
    """An answer's JSON-RPC error as a typed failure.

    Raises:
        InvalidResultError: it has none.
    """
    error = answer.get("error")
    if not isinstance(error, dict):
        raise InvalidResultError(problem_of(answer) or "it is neither a result nor an error")
    code, message = error.get("code"), error.get("message")
    text = cut_failure_message(message) if isinstance(message, str) and message else "the MCP server refused the call"
    details = {"code": code, **({"data": error["data"]} if "data" in error else {})}
    return Failure(text, "invalid_params" if code == INVALID_PARAMS else "mcp_error", details_json=_details(details))


def _details(details: Mapping[str, Any]) -> bytes:
    text = dumps(details) if details else b""
    return text if len(text) <= MAX_DETAILS_BYTES else b""
