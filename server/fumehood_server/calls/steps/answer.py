"""The last step of a call: its outcome, and the one line that it leaves in the log."""

from __future__ import annotations

import time

from fumehood_server.calls.call import Call
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.check import Checked, show
from fumehood_server.model.call import CallError, CallOutcome, Usage
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.telemetry.logging import CallLines

_OURS_TO_MEND = frozenset({Code.TOOL_PROTOCOL_ERROR, Code.TOOL_OUTCOME_UNKNOWN, Code.CONSTRAINT_SCHEMA_INVALID})
"""Codes that an operator or a plugin's author should look at."""


def failed(error: CallError) -> Checked:
    """What the caller may see of a call that has no result."""
    return Checked(show(error), error=error)


def outcome_of(call: Call, progress: Progress, checked: Checked) -> CallOutcome:
    """How the call ended, for its caller."""
    return CallOutcome(
        call_id=call.request.call_id,
        tool=call.request.tool,
        plugin="" if progress.tool is None else progress.tool.plugin,
        content=checked.content,
        details_json=checked.details_json,
        terminate=checked.terminate,
        error=checked.error,
        attempts=progress.attempts,
        usage=_usage(call, progress) if progress.sent else None,
        receipt=progress.receipt,
        coercions=progress.coercions,
        cached=progress.cached,
    )


def log_outcome(lines: CallLines, call: Call, progress: Progress, outcome: CallOutcome) -> None:
    """Write `execute_end`, or `execute_cancelled` when the caller or the sidecar ended the call."""
    error, usage = outcome.error, outcome.usage
    context = call.request.context
    fields: dict[str, object] = {
        "code": "OK" if error is None else error.code,
        "total_ms": round((time.monotonic() - call.admitted_at) * 1e3, 3),
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
        "plugin": "" if progress.tool is None else progress.tool.plugin,
        "worker_id": progress.worker_id,
    }
    if error is None:
        lines.info("execute_end", fields)
        return
    fields["message"] = error.message[:512]
    category = error.code.category
    event = "execute_cancelled" if category is Category.CANCELLATION else "execute_end"
    grave = category is Category.CONFIGURATION or error.code in _OURS_TO_MEND
    (lines.warning if grave else lines.info)(event, fields)


def _usage(call: Call, progress: Progress) -> Usage:
    spent = progress.spent
    return Usage(
        wall_s=time.monotonic() - progress.dispatched_at,
        queue_s=progress.dispatched_at - call.admitted_at,
        input_bytes=len(progress.arguments_json.encode()),
        output_bytes=spent.output_bytes,
        cpu_s=spent.cpu_s,
        peak_memory_bytes=spent.peak_memory_bytes,
        source=spent.source,
        egress_sent_bytes=spent.egress_sent_bytes,
        egress_received_bytes=spent.egress_received_bytes,
        requests=spent.requests,
    )
