"""JSON-RPC 2.0 messages as lines: parses what a client sends, and says what it is answered where that is no message."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import BaseModel, ValidationError

from fumehood_server.errors import FumehoodError

END_BYTES = 1024
"""Of a line that is not parsed: as much of its beginning and of its end is searched for the request's id."""

_SCALAR = rb'(-?[1-9][0-9]{0,18}|0|"[^"\\]{0,256}")'
_OPENING = re.compile(rb"\s*\{")
_MEMBER = re.compile(rb'\s*"(id|jsonrpc|method)"\s*:\s*' + _SCALAR + rb"\s*[,}]")
_LAST_ID = re.compile(rb'[,{]\s*"id"\s*:\s*' + _SCALAR + rb"\s*\}\s*\Z")


class MalformedMessageError(FumehoodError):
    """A line is no message. The client must act."""

    def __init__(self, problem: str, answer: SessionMessage | None = None) -> None:
        """`answer` is the error that the client is sent. None: it has asked nothing."""
        super().__init__(problem)
        self.answer = answer


def read_message(line: bytes) -> SessionMessage:
    """The message of a line, with or without a byte order mark.

    Half a surrogate pair stays in it as it was written: it is the handler's to refuse, with the request's id.

    Raises:
        MalformedMessageError: it is no JSON, or JSON that is no message.
    """
    try:
        # Not pydantic's own parsing: that knows no half of a pair and no depth above 200, and takes 20 s for what
        # json takes 4 for (8 MiB of empty lists).
        found = json.loads(line.removeprefix(codecs.BOM_UTF8).decode(errors="replace"))
    except json.JSONDecodeError:
        raise _refused(PARSE_ERROR, "the line is no JSON", _written_id(line[:END_BYTES], b"")) from None
    except (ValueError, RecursionError):  # thousands of digits; about a thousand levels
        problem = "the message is nested too deeply, or has a number of too many digits"
        raise _refused(PARSE_ERROR, problem, _written_id(line[:END_BYTES], line[-END_BYTES:])) from None
    is_object = isinstance(found, dict)
    is_request = is_object and "id" in found and "method" in found
    try:
        message = jsonrpc_message_adapter.validate_python(found, by_name=False)
    except ValidationError:
        message = None
    # A request whose id is none would be taken for a notification, which has no answer.
    if message is not None and (isinstance(message, JSONRPCRequest) or not is_request):
        return SessionMessage(message)
    if is_object and not is_request and not found.keys().isdisjoint({"method", "result", "error"}):
        raise MalformedMessageError("a notification or an answer is malformed")
    problem = "the message is no JSON-RPC 2.0 request whose id is a text or a whole number, and params an object"
    raise _refused(INVALID_REQUEST, problem, _given_id(found.get("id")) if is_object else None)


def refuse_overlong(ends: bytes, limit_bytes: int) -> MalformedMessageError:
    """What becomes of a line that was too long, of which END_BYTES were kept at either end."""
    request_id = _written_id(ends[:END_BYTES], ends[-END_BYTES:])
    return _refused(INVALID_REQUEST, f"a message of more than {limit_bytes} bytes was not read", request_id)


def write_message(message: JSONRPCMessage) -> bytes:
    """The line of a message."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:  # half of a surrogate pair, of a request that is named or told of: json escapes it
        text = json.dumps(_set_fields(message), default=_set_fields, separators=(",", ":"))
    return text.encode() + b"\n"


def _refused(code: int, problem: str, request_id: RequestId | None) -> MalformedMessageError:
    error = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=problem))
    return MalformedMessageError(problem, SessionMessage(error))


def _set_fields(model: BaseModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.model_fields_set}


def _given_id(value: object) -> RequestId | None:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _written_id(beginning: bytes, end: bytes) -> RequestId | None:
    """The id of a request, from a text that isn't parsed: among its first members, or as its last one.

    Only where a method stands among the first: the ids of answers are others, and an error would be taken for that
    of a request of the client's.
    """
    beginning = beginning.removeprefix(codecs.BOM_UTF8)
    members: dict[bytes, bytes] = {}
    opening = _OPENING.match(beginning)
    position = opening.end() if opening is not None else len(beginning)
    while (member := _MEMBER.match(beginning, position)) is not None:
        members[member[1]] = member[2]
        position = member.end()
    if b"method" not in members:
        return None
    if b"id" not in members and (last := _LAST_ID.search(end)) is not None:
        members[b"id"] = last[1]
    try:
        return _given_id(json.loads(members[b"id"]))
    except (KeyError, ValueError):  # no id, or one of no UTF-8
        return None


__all__ = ["END_BYTES", "MalformedMessageError", "read_message", "refuse_overlong", "write_message"]
