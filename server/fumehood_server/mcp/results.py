"""Converts a call's outcome into the result of `tools/call`, and a refusal into a JSON-RPC error."""

from __future__ import annotations

import json
from typing import Any

import grpc
from fumehood.v1 import error_pb2, tool_pb2
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, is_version_at_least

from fumehood_server.mcp.content import content_blocks
from fumehood_server.mcp.sidecar_link import UNREACHABLE, SidecarRefusedError

CALL_ID_KEY = "fumehood/callId"
"""Of `_meta`: in a request the id that the call is to have, in a result the one that it had."""

ERROR_KEY = "fumehood/error"
"""Of `_meta`: the typed error of a call that failed. Not structured content: official clients (TypeScript through
version 1) check that against the tool's output schema for errors as well, and throw in place of the result."""

REFUSED = -32000
"""JSON-RPC leaves -32000 to -32099 to servers: the sidecar refused the request before anything ran."""

_LINKS_SINCE = "2025-06-18"
_INVALID = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
_CATEGORY_PREFIX = "FAILURE_CATEGORY_"

Json = dict[str, Any]


def call_result(result: tool_pb2.ToolResult, version: str) -> Json:
    """The result of `tools/call`.

    Raises:
        MCPError: there is no such tool, which the protocol has as an error of the request.
    """
    if result.is_error and result.error.code == "TOOL_NOT_FOUND":
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {result.tool}", error_json(result.error))
    links = is_version_at_least(version, _LINKS_SINCE)
    blocks = content_blocks(result.content, result.call_id, result.plugin, links=links)
    answer: Json = {
        "resultType": "complete",
        "content": blocks,
        "isError": result.is_error,
        "_meta": {CALL_ID_KEY: result.call_id},
    }
    if result.is_error:
        if not blocks:
            blocks.append({"type": "text", "text": result.error.message})
        answer["_meta"][ERROR_KEY] = error_json(result.error)
    elif result.details_json:
        structured = json.loads(result.details_json)
        # Through 2025-11-25 structured content is an object; JSON of any other kind is in the text alone.
        if isinstance(structured, dict) or version in MODERN_PROTOCOL_VERSIONS:
            answer["structuredContent"] = structured
        if not blocks:
            blocks.append({"type": "text", "text": result.details_json})
    return answer


def error_json(error: error_pb2.SystemError) -> Json:
    """A typed error as JSON: code, category, whether to retry, message, details."""
    shape: Json = {
        "code": error.code,
        "category": error_pb2.FailureCategory.Name(error.category).removeprefix(_CATEGORY_PREFIX).lower(),
        "retryable": error.retryable,
        "message": error.message,
    }
    if error.details_json:
        shape["details"] = json.loads(error.details_json)
    if error.HasField("caused_by"):
        shape["causedBy"] = error_json(error.caused_by)
    return shape


def protocol_error(refusal: SidecarRefusedError) -> MCPError:
    """The JSON-RPC error of a request that the sidecar refused, with the reason in its data."""
    data: Json = {"code": refusal.reason, "retryable": refusal.retryable}
    if refusal.metadata:
        data["metadata"] = refusal.metadata
    if refusal.reason == UNREACHABLE:
        return MCPError(INTERNAL_ERROR, refusal.message, data)
    return MCPError(INVALID_PARAMS if refusal.status in _INVALID else REFUSED, refusal.message, data)
