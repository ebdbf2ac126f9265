"""The one line that each call leaves in the log."""

from __future__ import annotations

from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.telemetry.logging import CallLines

_OURS_TO_MEND = frozenset({Code.TOOL_PROTOCOL_ERROR, Code.TOOL_OUTCOME_UNKNOWN, Code.CONSTRAINT_SCHEMA_INVALID})
"""Codes that an operator or a plugin's author should look at."""


def log_outcome(
    lines: CallLines,
    request: CallRequest,
    outcome: CallOutcome,
    *,
    plugin: str,
    worker_id: str,
    total_s: float,
) -> None:
    """Write `execute_end`, or `execute_cancelled` when the caller or the sidecar ended the call."""
    error, usage = outcome.error, outcome.usage
    context = request.context
    fields: dict[str, object] = {
        "code": "OK" if error is None else error.code,
        "total_ms": round(total_s * 1e3, 3),
        "wall_ms": None if usage is None else round(usage.wall_s * 1e3, 3),
        "cpu_ms": None if usage is None or usage.cpu_s is None else round(usage.cpu_s * 1e3, 3),
        "peak_memory_bytes": None if usage is None else usage.peak_memory_bytes,
        "request_id": context.request_id,
        "session_id": context.session_id,
        "trace_id": context.trace_id,
        "span_id": context.span_id,
        "parent_span_id": context.parent_span_id,
        "turn_id": context.turn_id,
        "step_name": context.step_name,
        "caused_by": context.caused_by,
        "call_id": outcome.call_id,
        "tool": outcome.tool[:64],
        "plugin": plugin,
        "worker_id": worker_id,
    }
    if error is None:
        lines.info("execute_end", fields)
        return
    fields["message"] = error.message[:512]
    category = error.code.category
    event = "execute_cancelled" if category is Category.CANCELLATION else "execute_end"
    grave = category is Category.CONFIGURATION or error.code in _OURS_TO_MEND
    (lines.warning if grave else lines.info)(event, fields)
