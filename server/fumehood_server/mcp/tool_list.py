"""`tools/list`: the tools that one caller may call, page by page, as the sidecar's ListTools gives them."""

from __future__ import annotations

import json
from typing import Any

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.sidecar_link import SidecarLink
from fumehood_server.mcp.tool_choice import ToolChoice

HEADER_KEYWORD = "x-mcp-header"
"""Of a schema's property: its value comes in a header of the request as well, which is compared."""

_MAX_HEADER_SCHEMAS = 1024

JsonTool = dict[str, Any]


class ToolList:
    """What is offered, by the sidecar's word of the moment."""

    __slots__ = ("_choice", "_header_schemas", "_link")

    def __init__(self, link: SidecarLink, choice: ToolChoice) -> None:
        """Nothing is asked yet."""
        self._link = link
        self._choice = choice
        self._header_schemas: dict[str, JsonTool] = {}

    async def page(self, cursor: str | None, caller: McpCaller) -> tuple[list[JsonTool], str]:
        """Tools from `cursor` on, and the cursor of the next page: empty after the last.

        A page of which nothing is offered is passed over.

        Raises:
            SidecarRefusedError: the cursor is wrong, or the caller is not known.
        """
        token = cursor or ""
        while True:
            answer = await self._link.list_tools(self._request(token), caller)
            listed: list[JsonTool] = json.loads(answer.tools_json)
            offered = [each for each in listed if self._choice.takes(each["name"])]
            token = answer.next_page_token
            if offered or not token:
                self._keep_header_schemas(offered)
                return offered, token

    async def offers(self, name: str, caller: McpCaller) -> bool:
        """Whether a call of this name is to be sent on. Only where levels are narrowed is the sidecar asked.

        Raises:
            SidecarRefusedError: the caller is not known.
        """
        if not self._choice.takes(name):
            return False
        if not self._choice.max_level:
            return True
        request = self._request("")
        request.names.append(name)
        request.include_unavailable = True  # the call says why it can't run
        return (await self._link.list_tools(request, caller)).tools_json != "[]"

    def header_schema(self, name: str) -> JsonTool | None:
        """The input schema of a tool whose arguments come in headers as well, once it was listed."""
        return self._header_schemas.get(name)

    def _request(self, token: str) -> pb.ListToolsRequest:
        return pb.ListToolsRequest(
            page_token=token,
            format=pb.TOOL_FORMAT_MCP,
            max_side_effects=self._choice.max_level,
            callable_only=True,
        )

    def _keep_header_schemas(self, tools: list[JsonTool]) -> None:
        for each in tools:
            schema = each["inputSchema"]
            properties = schema.get("properties")
            named = isinstance(properties, dict) and any(
                isinstance(value, dict) and HEADER_KEYWORD in value for value in properties.values()
            )
            if named and len(self._header_schemas) < _MAX_HEADER_SCHEMAS:
                self._header_schemas[each["name"]] = schema
            elif not named:
                self._header_schemas.pop(each["name"], None)
