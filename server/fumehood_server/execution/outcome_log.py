"""The one line that each call leaves in the log."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.telemetry.logging import correlation

_OURS_TO_MEND = frozenset({Code.TOOL_PROTOCOL_ERROR, Code.TOOL_OUTCOME_UNKNOWN, Code.CONSTRAINT_SCHEMA_INVALID})
"""Codes that an operator or a plugin's author should look at."""


def log_outcome(
    log: FilteringBoundLogger,
    request: CallRequest,
    outcome: CallOutcome,
    *,
    plugin: str,
    worker_id: str,
    total_s: float,
) -> None:
    """Write `execute_end`, or `execute_cancelled` when the caller or the sidecar ended the call."""
    error, usage = outcome.error, outcome.usage
    fields = correlation(request.context)
    fields["call_id"] = outcome.call_id
    fields["tool"] = outcome.tool[:64]
    fields["plugin"] = plugin
    fields["worker_id"] = worker_id
    total_ms = round(total_s * 1e3, 3)
    wall_ms = round(usage.wall_s * 1e3, 3) if usage else None
    if error is None:
        log.info("execute_end", code="OK", total_ms=total_ms, wall_ms=wall_ms, **fields)
        return
    category = error.code.category
    event = "execute_cancelled" if category is Category.CANCELLATION else "execute_end"
    grave = category is Category.CONFIGURATION or error.code in _OURS_TO_MEND
    write = log.warning if grave else log.info
    write(event, code=error.code, total_ms=total_ms, wall_ms=wall_ms, message=error.message[:512], **fields)
