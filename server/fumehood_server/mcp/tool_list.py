"""`tools/list`: the tools that one caller may call, page by page, as the sidecar's ListTools gives them."""

from __future__ import annotations

import json
from typing import Any

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.sidecar_link import SidecarLink
from fumehood_server.mcp.tool_choice import ToolChoice

JsonTool = dict[str, Any]


class ToolList:
    """What is offered, by the sidecar's word of the moment."""

    __slots__ = ("_choice", "_link")

    def __init__(self, link: SidecarLink, choice: ToolChoice) -> None:
        """Nothing is asked yet."""
        self._link = link
        self._choice = choice

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
        return (await self._find(name, caller)) is not None

    async def input_schema(self, name: str, caller: McpCaller) -> JsonTool | None:
        """The schema of a tool's arguments. None: the caller may call no tool of that name.

        Raises:
            SidecarRefusedError: the caller is not known.
        """
        found = await self._find(name, caller) if self._choice.takes(name) else None
        schema: JsonTool | None = None if found is None else found["inputSchema"]
        return schema

    async def _find(self, name: str, caller: McpCaller) -> JsonTool | None:
        request = self._request("")
        request.names.append(name)
        request.include_unavailable = True  # the call says why it can't run
        found: list[JsonTool] = json.loads((await self._link.list_tools(request, caller)).tools_json)
        return found[0] if found else None

    def _request(self, token: str) -> pb.ListToolsRequest:
        return pb.ListToolsRequest(
            page_token=token,
            format=pb.TOOL_FORMAT_MCP,
            max_side_effects=self._choice.max_level,
            callable_only=True,
        )
