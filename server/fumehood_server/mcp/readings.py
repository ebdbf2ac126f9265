"""Resources and prompts of hosted MCP servers, by `McpService`: lists, page by page, and what is read."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from fumehood.v1 import mcp_service_pb2 as pb
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.names import split_prompt, split_resource
from fumehood_server.mcp.open_calls import OpenCalls
from fumehood_server.mcp.reading_list import Listing, prompt_messages, resource_contents
from fumehood_server.mcp.request_meta import call_context, given_id
from fumehood_server.mcp.results import CALL_ID_KEY, REFUSED, Json, error_json, protocol_error
from fumehood_server.mcp.sidecar_link import SidecarLink, SidecarRefusedError
from fumehood_server.mcp.tool_choice import ToolChoice

LEFT_OUT_KEY = "fumehood/leftOut"
"""Of `_meta` in a list: servers that could not be listed, each with why."""
_MAX_ERROR_CODE = 2**31

_Context = ServerRequestContext[Any, Any]
_Message = Any
"""A request or a response of any reading."""


class Readings:
    """Answers the methods that read, for all clients. For one event loop."""

    __slots__ = ("_choice", "_link", "_open")

    def __init__(self, link: SidecarLink, choice: ToolChoice) -> None:
        """No reading is under way."""
        self._link = link
        self._choice = choice
        self._open = OpenCalls()

    async def page(self, listing: Listing, cursor: str | None, context: _Context, caller: McpCaller) -> Json:
        """Entries from `cursor` on, of one server. One that can't be listed is passed over, and named.

        Raises:
            MCPError: the cursor is wrong, or the request was refused before anything ran.
        """
        start, token = _read_cursor(cursor)
        left_out: dict[str, Json] = {}
        entries: list[Json] = []
        following = ""
        servers = [each for each in await self._servers(listing.method, caller) if each >= start]
        for index, plugin in enumerate(servers):
            request = listing.request(plugin=plugin, page_token=token if plugin == start else "")
            page = await self._read(listing.call(self._link.readings), listing.method, request, context, caller)
            if page.reading.HasField("error"):
                left_out[plugin] = error_json(page.reading.error)
                continue
            entries = listing.entries(plugin, page)
            after = servers[index + 1] if index + 1 < len(servers) else ""
            following = _make_cursor(plugin, page.next_page_token) if page.next_page_token else _make_cursor(after, "")
            if entries or page.next_page_token:
                break
        answer: Json = {"resultType": "complete", listing.key: entries, "ttlMs": 0, "cacheScope": "private"}
        if left_out:
            answer["_meta"] = {LEFT_OUT_KEY: left_out}
        return {**answer, "nextCursor": following} if following else answer

    async def resource(self, uri: str, context: _Context, caller: McpCaller) -> Json:
        """What a resource holds.

        Raises:
            MCPError: there is none, or it can't be read.
        """
        found = split_resource(uri)
        if found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown resource: {uri[:256]}", {"uri": uri[:256]})
        plugin, theirs = found
        request = pb.ReadResourceRequest(plugin=plugin, uri=theirs)
        method: Callable[..., Any] = self._link.readings.ReadResource
        response: pb.ReadResourceResponse = await self._settled(method, "resources/read", request, context, caller)
        return {
            "resultType": "complete",
            "contents": resource_contents(plugin, response.contents),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {CALL_ID_KEY: response.reading.call_id},
        }

    async def prompt(self, name: str, arguments: Mapping[str, str], context: _Context, caller: McpCaller) -> Json:
        """A prompt that is filled in.

        Raises:
            MCPError: there is none, or it can't be filled in.
        """
        found = split_prompt(name)
        if found is None:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name[:256]}")
        plugin, theirs = found
        values = [pb.McpPromptValue(name=key, value=value) for key, value in arguments.items()]
        request = pb.GetPromptRequest(plugin=plugin, name=theirs, arguments=values)
        method: Callable[..., Any] = self._link.readings.GetPrompt
        response: pb.GetPromptResponse = await self._settled(method, "prompts/get", request, context, caller)
        return {
            "resultType": "complete",
            **({"description": response.description} if response.description else {}),
            "messages": prompt_messages(plugin, response.reading.call_id, response.messages),
            "_meta": {CALL_ID_KEY: response.reading.call_id},
        }

    async def _servers(self, method: str, caller: McpCaller) -> list[str]:
        """Servers that can be asked by this method, in the order of their names."""
        try:
            found = await self._link.mcp_servers(caller)
        except SidecarRefusedError as error:
            raise protocol_error(error) from error
        most = self._choice.max_level
        return [
            each.plugin
            for each in found
            if each.availability.available
            and any(known.method == method and not (most and known.side_effects > most) for known in each.methods)
            and self._choice.takes(f"{each.plugin}/{method}")
        ]

    async def _settled(
        self,
        method: Callable[..., Any],
        name: str,
        request: _Message,
        context: _Context,
        caller: McpCaller,
    ) -> _Message:
        """The response of a reading that succeeded."""
        if not await self._offers(request.plugin, name, caller):
            raise MCPError(INVALID_PARAMS, f"No MCP server {request.plugin[:64]} is offered for {name}")
        response = await self._read(method, name, request, context, caller)
        if response.reading.HasField("error"):
            raise _reading_error(response.reading)
        return response

    async def _offers(self, plugin: str, method: str, caller: McpCaller) -> bool:
        """Whether a reading is to be sent on. Only where levels are narrowed is the sidecar asked."""
        if not self._choice.takes(f"{plugin}/{method}"):
            return False
        return not self._choice.max_level or plugin in await self._servers(method, caller)

    async def _read(
        self,
        method: Callable[..., Any],
        name: str,
        request: _Message,
        context: _Context,
        caller: McpCaller,
    ) -> _Message:
        """A reading's response. One that waits for an approval comes back under its id."""
        asked = request.SerializeToString(deterministic=True).hex()
        key = self._open.key(name, asked)
        options = request.options
        options.call_id = given_id(context) or self._open.find(caller, key) or f"mcp-{secrets.token_hex(16)}"
        options.context.CopyFrom(call_context(context))
        options.return_if_approval_required = True
        try:
            response = await self._link.read(method, request, caller)
        except SidecarRefusedError as error:
            raise protocol_error(error) from error
        if response.reading.error.code == "TOOL_APPROVAL_REQUIRED":
            self._open.keep(caller, key, options.call_id)
        else:
            self._open.forget(caller, key)
        return response


def _reading_error(reading: pb.McpReading) -> MCPError:
    """The JSON-RPC error of a reading that failed: the server's own code, where the server refused."""
    shape = error_json(reading.error)
    details = shape.get("details")
    code = details.get("code") if isinstance(details, dict) else None
    if type(code) is int and abs(code) < _MAX_ERROR_CODE:
        return MCPError(code, reading.error.message, shape)
    if reading.error.code == "TOOL_NOT_FOUND":
        return MCPError(INVALID_PARAMS, reading.error.message, shape)
    return MCPError(REFUSED, reading.error.message, shape)


def _make_cursor(plugin: str, token: str) -> str:
    """Where the next page begins. Empty: there is none."""
    return base64.urlsafe_b64encode(json.dumps([plugin, token]).encode()).decode() if plugin else ""


def _read_cursor(cursor: str | None) -> tuple[str, str]:
    if not cursor:
        return "", ""
    try:
        plugin, token = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        plugin = token = None
    if not isinstance(plugin, str) or not isinstance(token, str):
        raise MCPError(INVALID_PARAMS, "the cursor is not one that was given here")
    return plugin, token
