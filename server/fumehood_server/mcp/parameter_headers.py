"""`Mcp-Param-*` headers (2026-07-28): a call whose headers say otherwise than its arguments is refused.

A property of a tool's schema that bears `x-mcp-header` is repeated in a header of the HTTP request, for whatever stands
between to route by. The SDK's own check would list all tools before each call.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX, validate_mcp_param_headers, x_mcp_header_map
from mcp_types import CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fumehood_server.mcp.callers import McpCaller
from fumehood_server.mcp.tool_list import JsonTool, ToolList

KNOWN_S = 5.0
"""How long a schema is not asked for again: calls of one tool come one after the other, and few definitions change."""

_MAX_KNOWN = 1024
"""Schemas of tools, each for one caller. Beyond that, what was asked for first is asked for anew."""

_PREFIX = MCP_PARAM_HEADER_PREFIX.lower()


class ParameterHeaders:
    """Compares headers with arguments, by what the sidecar says of the tool. For one event loop."""

    __slots__ = ("_known", "_tools")

    def __init__(self, tools: ToolList) -> None:
        """No tool is known."""
        self._tools = tools
        self._known: OrderedDict[tuple[str, str], tuple[float, JsonTool | None]] = OrderedDict()

    async def check(
        self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams, caller: McpCaller
    ) -> None:
        """Over HTTP and in 2026-07-28; elsewhere there are no such headers.

        Raises:
            MCPError: a header and its argument differ, or one of them is not there. HTTP has it as 400.
            SidecarRefusedError: the caller is not known.
        """
        if context.request is None or context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        headers, arguments = context.request.headers, params.arguments or {}
        if not arguments and not any(each.startswith(_PREFIX) for each in headers):
            return
        schema = await self._marked_schema(params.name, caller)
        refusal = None if schema is None else validate_mcp_param_headers(schema, arguments, headers)
        if refusal is not None:
            raise MCPError(refusal.code, refusal.message, refusal.data)

    async def _marked_schema(self, name: str, caller: McpCaller) -> JsonTool | None:
        """The tool's input schema. None: it marks nothing, or there is no such tool for this caller."""
        key, now = (caller.share, name), asyncio.get_running_loop().time()
        until, schema = self._known.get(key, (0.0, None))
        if until > now:
            return schema
        found = await self._tools.input_schema(name, caller)
        if found is None:
            return None
        schema = found if x_mcp_header_map(found) else None
        self._known[key] = now + KNOWN_S, schema
        self._known.move_to_end(key)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return schema
