"""`notifications/progress` of an MCP server as updates of the calls that it is for, up to a rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.calls import McpCall
from fumehood_sdk.wire import plugin_frames

UPDATE_INTERVAL_S = 0.005
"""Between two updates of one call; what comes sooner is dropped, but its place is taken by the next one."""
MAX_UPDATE_CHARACTERS = 2048


def progress_frame(call: McpCall, params: Mapping[str, Any], now: float) -> bytes | None:
    """What a notification tells of a call, as a frame. None: it comes too soon."""
    if now < call.updated_at + UPDATE_INTERVAL_S:
        return None
    call.updated_at = now
    message = params.get("message")
    text = message if isinstance(message, str) else ""
    return update_frame(call, text, _number(params.get("progress")), _number(params.get("total")))


def update_frame(call: McpCall, text: str, progress: float | None = None, total: float | None = None) -> bytes:
    """An update as a frame, its text cut."""
    cut = text[:MAX_UPDATE_CHARACTERS]
    body = plugin_frames.encode_update(call.invocation_id, cut, progress, total, b"")
    return plugin_frames.delimited_frame(plugin_frames.UPDATE, body)


def _number(value: object) -> float | None:
    """A finite number. Python's reader of JSON takes NaN and Infinity, which no JSON has."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
