"""`_meta` of a client's request: the id that its call is to have, and the trace that it is part of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fumehood.v1 import tool_pb2
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fumehood_server.mcp.log_levels import session_id
from fumehood_server.mcp.results import CALL_ID_KEY

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
"""W3C Trace Context, level 1."""

_Context = ServerRequestContext[Any, Any]


def given_id(context: _Context) -> str:
    """The id that the request gives its call. Empty: none.

    Raises:
        MCPError: it is no text.
    """
    found = _meta(context).get(CALL_ID_KEY, "")
    if not isinstance(found, str):
        raise MCPError(INVALID_PARAMS, f"{CALL_ID_KEY} in _meta is to be a text")
    return found


def call_context(context: _Context) -> tool_pb2.CallContext:
    """What the call belongs to: the MCP session, and the trace that the client's request is part of."""
    found = tool_pb2.CallContext(session_id=session_id(context))
    parent = _meta(context).get("traceparent")
    trace = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    if trace is not None:
        found.trace_id, found.parent_span_id = trace.groups()
    return found


def _meta(context: _Context) -> Mapping[str, Any]:
    found = (context.params or {}).get("_meta")
    return found if isinstance(found, Mapping) else {}
