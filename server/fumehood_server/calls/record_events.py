"""The journal's events of a call, made of its outcome, and what is kept of its payloads."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.progress import Progress
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.events import (
    Digested,
    ExecuteCancelled,
    ExecuteEnd,
    Fault,
    LimitReached,
    payload_of,
)
from fumehood_server.model.http_answers import unconfirmed
from fumehood_server.model.outcome_json import outcome_to_json
from fumehood_server.model.taken_values import TakenValues
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.model.tool import Payloads
from fumehood_server.secrets import Redactor

_LIMITS = frozenset({Code.TOOL_RESOURCE_EXHAUSTED, Code.TOOL_TIMEOUT, Code.CANCELLED_TIMEOUT})


def kept_of_arguments(
    text: str, progress: Progress, policy: Payloads, *, in_thread: bool
) -> tuple[str, Digested | None, tuple[bytes, ...]]:
    """The hash of a call's arguments, and what is kept of them, without secrets."""
    data = text.encode(errors="surrogatepass")
    arguments_hash = progress.arguments_hash or hashlib.sha256(data).hexdigest()
    return arguments_hash, *payload_of(_redacted(data, progress.redactor, in_thread=in_thread), policy)


def kept_of_values(
    values: TakenValues, answers: Mapping[bytes, int], redactor: Redactor | None, *, in_thread: bool
) -> tuple[Digested, bytes, int]:
    """What is kept of what a call took from outside, without secrets, and how much of that is unconfirmed."""
    data = _redacted(values.to_json(), redactor, in_thread=in_thread)
    return Digested.of(data), data, unconfirmed(values.values, answers)


def kept_of_outcome(
    progress: Progress, outcome: CallOutcome, policy: Payloads, *, in_thread: bool
) -> tuple[Fault | None, Digested | None, tuple[bytes, ...]]:
    """What is kept of an outcome, by the tool's policy and without secrets: its error, its result, the payload."""
    data = _redacted(outcome_to_json(outcome), progress.redactor, in_thread=in_thread)
    error, redactor = outcome.error, progress.redactor
    if error is not None and redactor is not None:  # before it is cut: of a secret, the cut would leave a part
        text = redactor.text_in_thread(error.message) if in_thread else redactor.text(error.message)
        error = replace(error, message=text)
    return None if error is None else Fault.of(error, policy), *payload_of(data, policy)


def _redacted(data: bytes, redactor: Redactor | None, *, in_thread: bool) -> bytes:
    if redactor is None:
        return data
    return redactor.data_in_thread(data) if in_thread else redactor.data(data)


def end_event(
    call: Call, progress: Progress, outcome: CallOutcome, *, error: Fault | None, result: Digested | None, receipt: str
) -> ExecuteEnd | ExecuteCancelled:
    """The event of a call's end. `error` and `result` are what is kept of them, `receipt` the digest of a document."""
    failed, usage = outcome.error, outcome.usage
    kind = ExecuteEnd if failed is None or failed.code.category is not Category.CANCELLATION else ExecuteCancelled
    event = kind(
        error=error,
        outcome_unknown=failed is not None and bool(failed.details.get("outcome_unknown")),
        result=result,
        attempts=outcome.attempts,
        updates=progress.updates,
        worker_id=progress.worker_id,
        receipt=receipt,
        wall_us=0 if usage is None else round(usage.wall_s * 1e6),
        queue_us=round((time.monotonic() - call.admitted_at) * 1e6) if usage is None else round(usage.queue_s * 1e6),
        cpu_us=None if usage is None or usage.cpu_s is None else round(usage.cpu_s * 1e6),
        peak_memory_bytes=0 if usage is None else usage.peak_memory_bytes,
        source="" if usage is None else usage.source,
        input_bytes=0 if usage is None else usage.input_bytes,
        output_bytes=0 if usage is None else usage.output_bytes,
        egress_sent_bytes=0 if usage is None else usage.egress_sent_bytes,
        egress_received_bytes=0 if usage is None else usage.egress_received_bytes,
        requests=0 if usage is None else usage.requests,
        cached_call_id="" if outcome.cached is None else outcome.cached.call_id,
        cached_age_us=None if outcome.cached is None else round(outcome.cached.age_s * 1e6),
    )
    if isinstance(event, ExecuteCancelled):
        cancellation = call.cancellation
        event.reason = "deadline" if cancellation is None else cancellation.reason.value
        event.by = "" if cancellation is None else cancellation.by
    return event


def limit_reached(error: CallError) -> LimitReached | None:
    """The limit or the deadline that ended a call. None: none did."""
    if error.code not in _LIMITS:
        return None
    details = error.details
    value, usage = (each if isinstance(each, int | float) else None for each in map(details.get, ("value", "usage")))
    return LimitReached(
        limit=str(details.get("limit", "timeout_s")),
        value=value,
        usage=usage,
        unit=str(details.get("unit", "")),
        bound=str(details.get("bound", "")),
        ended_by=str(details.get("ended_by", "")),
    )


def unrecorded(outcome: CallOutcome, problem: str) -> CallOutcome:
    """What a caller is told instead of an outcome that could not be recorded."""
    error = CallError(
        code=Code.TOOL_OUTCOME_UNKNOWN,
        message=(
            f"{outcome.tool[:64]} ran, and how it ended could not be recorded in time: {problem}. "
            f'Ask GetCall for "{outcome.call_id}" once the journal can be written again.'
        ),
        details={"outcome_unknown": True, "reason": "journal_unavailable"},
    )
    return CallOutcome(
        call_id=outcome.call_id,
        tool=outcome.tool,
        plugin=outcome.plugin,
        content=(Block(text=error.message),),
        error=error,
        attempts=outcome.attempts,
        usage=outcome.usage,
        receipt=outcome.receipt,
    )
