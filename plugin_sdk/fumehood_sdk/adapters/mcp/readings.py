"""Reads resources and prompts: calls of reserved tools that are named as the MCP methods which they pass through.

What a server answers is taken apart here, inside its sandbox. The sidecar gets documents of its own shape, which
`fumehood_server.plugins.mcp_readings` has as output schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.messages import METHOD_NOT_FOUND, Message
from fumehood_sdk.adapters.mcp.results import (
    InvalidResultError,
    asks_for_input,
    content_block,
    malformed,
    refused_answer,
    rpc_failure,
)
from fumehood_sdk.json_text import dumps
from fumehood_sdk.wire.plugin_frames import Block, Failure, Sent

MAX_LISTED = 4096
"""Entries of one page."""
MAX_CONTENTS = 1024
"""Contents of one resource, and messages of one prompt: as many as a result may have blocks."""
MAX_ARGUMENTS = 64
"""Of one prompt."""
MAX_URI_CHARACTERS = 8192
MAX_CURSOR_CHARACTERS = 4096
MAX_NAME_CHARACTERS = 512
MAX_DESCRIPTION_CHARACTERS = 8192
MAX_MEDIA_TYPE_CHARACTERS = 255
_MAX_WHOLE = 2**53 - 1
_ROLES = ("user", "assistant")

Json = dict[str, Any]
_Read = tuple[tuple[Block, ...], Json]


class Reading:
    """How one method is passed through."""

    __slots__ = ("_convert", "_empty", "capability", "method")

    def __init__(
        self, method: str, capability: str, convert: Callable[[Mapping[str, Any]], _Read], empty: Json | None = None
    ) -> None:
        """`empty` is what a server without the capability has to list. None: to ask it for one thing is a failure."""
        self.method = method
        self.capability = capability
        self._convert = convert
        self._empty = empty

    def unoffered(self) -> Sent | Failure:
        """What is answered where the server doesn't declare the capability."""
        if self._empty is None:
            return Failure(f"the MCP server has no {self.capability}", "not_offered")
        return (), dumps(self._empty), False

    def convert(self, answer: Message, *, arguments: bytes = b"{}") -> Sent | Failure:
        """The result of the call that had these arguments. Never raises for what a server sends.

        A server that knows no such method has nothing to list: many have resources and no templates.
        """
        result = answer.get("result")
        error = answer.get("error")
        if self._empty is not None and isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND:
            return self.unoffered()
        try:
            if not isinstance(result, dict):
                return rpc_failure(answer)
            if asks_for_input(result):
                return refused_answer(answer)
            content, document = self._convert(result)
            _check_cursor(document, arguments)
            return content, dumps(document), False
        except (InvalidResultError, ValueError, RecursionError) as error:
            return malformed(error)


def _check_cursor(document: Json, arguments: bytes) -> None:
    cursor = document.get("next_cursor")
    if cursor is not None and cursor == json.loads(arguments or b"{}").get("cursor"):
        raise InvalidResultError("the list doesn't end: `nextCursor` is the cursor that this page was asked by")


def _list_of(key: str, entry: Callable[[Mapping[str, Any]], Json | None]) -> Callable[[Mapping[str, Any]], _Read]:
    """A page under `key`. An entry that is none is left out, and counted."""

    def convert(result: Mapping[str, Any]) -> _Read:
        listed = result.get(key)
        if not isinstance(listed, list):
            raise InvalidResultError(f"`{key}` is no list")
        if len(listed) > MAX_LISTED:
            raise InvalidResultError(f"`{key}` has {len(listed)} entries, and {MAX_LISTED} are allowed in one page")
        found = [made for each in listed if isinstance(each, dict) and (made := entry(each)) is not None]
        document: Json = {key: found, "left_out": len(listed) - len(found)}
        cursor = result.get("nextCursor")
        if isinstance(cursor, str) and cursor:
            if len(cursor) > MAX_CURSOR_CHARACTERS:
                raise InvalidResultError(f"`nextCursor` is longer than {MAX_CURSOR_CHARACTERS} characters")
            document["next_cursor"] = cursor
        return (), document

    return convert


def _resource(listed: Mapping[str, Any]) -> Json | None:
    made = _located(listed, "uri", "uri")
    size = listed.get("size")
    if made is not None and type(size) is int and 0 <= size <= _MAX_WHOLE:
        made["size"] = size
    return made


def _template(listed: Mapping[str, Any]) -> Json | None:
    return _located(listed, "uriTemplate", "uri_template")


def _located(listed: Mapping[str, Any], theirs: str, ours: str) -> Json | None:
    uri = listed.get(theirs)
    if not isinstance(uri, str) or not 0 < len(uri) <= MAX_URI_CHARACTERS:
        return None
    name = listed.get("name")
    made: Json = {ours: uri, "name": name[:MAX_NAME_CHARACTERS] if isinstance(name, str) else "", **_texts(listed)}
    if media_type := _media_type(listed):
        made["media_type"] = media_type
    return made | _annotations(listed.get("annotations"))


def _prompt(listed: Mapping[str, Any]) -> Json | None:
    name = listed.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        return None
    taken = listed.get("arguments") or []
    if not isinstance(taken, list) or len(taken) > MAX_ARGUMENTS:
        return None
    arguments = [_argument(each) for each in taken]
    return None if None in arguments else {"name": name, **_texts(listed), "arguments": arguments}


def _argument(listed: object) -> Json | None:
    name = listed.get("name") if isinstance(listed, dict) else None
    if not isinstance(listed, dict) or not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        return None
    return {"name": name, **_texts(listed), "required": listed.get("required") is True}


def _texts(listed: Mapping[str, Any]) -> Json:
    bounds = {"title": MAX_NAME_CHARACTERS, "description": MAX_DESCRIPTION_CHARACTERS}
    return {key: text[:most] for key, most in bounds.items() if isinstance(text := listed.get(key), str) and text}


def _media_type(listed: Mapping[str, Any]) -> str:
    found = listed.get("mimeType")
    return found[:MAX_MEDIA_TYPE_CHARACTERS] if isinstance(found, str) else ""


def _annotations(given: object) -> Json:
    made: Json = {}
    if not isinstance(given, dict):
        return made
    audience = given.get("audience")
    if isinstance(audience, list) and (roles := [each for each in _ROLES if each in audience]):
        made["audience"] = roles
    priority = given.get("priority")
    if isinstance(priority, int | float) and not isinstance(priority, bool) and 0 <= priority <= 1:
        made["priority"] = float(priority)
    modified = given.get("lastModified")
    if isinstance(modified, str) and modified:
        made["last_modified"] = modified[:64]
    return made


def _contents(result: Mapping[str, Any]) -> _Read:
    """A resource's contents: a block each, and beside it where it is from and what it is."""
    blocks, found = [], []
    for each in _few(result, "contents"):
        blocks.append(content_block({"type": "resource", "resource": each}))
        uri = each.get("uri")
        if not isinstance(uri, str) or len(uri) > MAX_URI_CHARACTERS:
            raise InvalidResultError("contents without a URI, or with one that is too long")
        found.append({"uri": uri, "media_type": _media_type(each)})
    return tuple(blocks), {"contents": found}


def _messages(result: Mapping[str, Any]) -> _Read:
    """A prompt's messages: a block each, and beside it whose it is."""
    blocks, found = [], []
    for each in _few(result, "messages"):
        content = each.get("content")
        if each.get("role") not in _ROLES or not isinstance(content, dict):
            raise InvalidResultError("a message has no role or no content")
        blocks.append(content_block(content))
        message: Json = {"role": each["role"]}
        resource = content.get("resource")
        if content.get("type") == "resource" and isinstance(resource, dict):
            uri = resource.get("uri")
            if isinstance(uri, str) and len(uri) <= MAX_URI_CHARACTERS:
                message |= {"uri": uri, "media_type": _media_type(resource)}
        found.append(message)
    return tuple(blocks), {"messages": found, **_texts({"description": result.get("description")})}


def _few(result: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = result.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidResultError(f"`{key}` is no list of objects")
    if len(found) > MAX_CONTENTS:
        raise InvalidResultError(f"`{key}` has {len(found)} entries, and {MAX_CONTENTS} are allowed")
    return found


READINGS = {
    each.method: each
    for each in (
        Reading("resources/list", "resources", _list_of("resources", _resource), {"resources": [], "left_out": 0}),
        Reading(
            "resources/templates/list",
            "resources",
            _list_of("resourceTemplates", _template),
            {"resourceTemplates": [], "left_out": 0},
        ),
        Reading("resources/read", "resources", _contents),
        Reading("prompts/list", "prompts", _list_of("prompts", _prompt), {"prompts": [], "left_out": 0}),
        Reading("prompts/get", "prompts", _messages),
    )
}
"""By the names of the reserved tools. No server's tool has one of them: those have no slash."""
