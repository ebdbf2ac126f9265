"""`notifications/progress` of an MCP server as updates of the calls that it is for, up to a rate.

What comes too soon is kept until the next one comes, and told before the next update or the call's result: the newest
of it, so that the last step is always told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fumehood_sdk.adapters.mcp.calls import McpCall
from fumehood_sdk.wire import plugin_frames

UPDATE_INTERVAL_S = 0.005
"""From one update of a call until the next one is told at once. Without timers: two at most are told in that time."""
MAX_UPDATE_CHARACTERS = 2048


def progress_frames(call: McpCall, params: Mapping[str, Any], now: float) -> bytes:
    """What is told of a call once a notification came, as frames. Empty: it comes too soon, and is kept."""
    message = params.get("message")
    text = message if isinstance(message, str) else ""
    frame = update_frame(call, text, _number(params.get("progress")), _number(params.get("total")))
    if now < call.updated_at + UPDATE_INTERVAL_S:
        call.kept_update = frame
        return b""
    call.updated_at = now
    return take_kept(call) + frame


def take_kept(call: McpCall) -> bytes:
    """The newest update that came too soon, as a frame, once. Empty: there is none."""
    frame, call.kept_update = call.kept_update, b""
    return frame


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
