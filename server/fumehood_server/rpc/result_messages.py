"""Turns outcomes, updates and errors into messages. Protobuf types of results begin here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from fumehood.v1 import error_pb2, tool_pb2, tool_service_pb2
from fumehood_sandbox import Receipt

from fumehood_server.calls import Entry
from fumehood_server.model.call import (
    CallApproval,
    CallError,
    CallOutcome,
    CallQuestion,
    CallRetry,
    CallUpdate,
)
from fumehood_server.model.content_messages import fill_block
from fumehood_server.model.durations import set_duration
from fumehood_server.model.per_receipt import PerReceipt
from fumehood_server.model.side_effects import SIDE_EFFECTS
from fumehood_server.model.text import printable
from fumehood_server.rpc.status import CATEGORIES

MAX_MESSAGE_CHARS = 4096
MAX_DETAILS_BYTES = 64 * 1024
MAX_CAUSES = 8

_KEPT = ("reason", "violation", "limit", "value", "usage", "unit")
_MAX_KEPT_CHARS = 1024

_UNRECORDED = tool_pb2.SandboxLayer(name="journal", detail="off: the call is not recorded", weaker=True)


class ResultWriter:
    """Turns outcomes into results. The receipt, the largest part of a small one, is made once for each worker."""

    __slots__ = ("_receipts", "_unrecorded")

    def __init__(self, *, unrecorded: bool = False) -> None:
        """`unrecorded`: the operator has switched the journal off, which every receipt then says."""
        self._unrecorded = unrecorded
        self._receipts: PerReceipt[tool_pb2.SandboxReceipt] = PerReceipt()

    def fill(self, message: tool_pb2.ToolResult, outcome: CallOutcome) -> None:
        """Write the outcome into an empty result, which most often is part of a response already."""
        message.call_id = outcome.call_id
        message.tool = outcome.tool
        message.plugin = outcome.plugin
        content = message.content
        for block in outcome.content:
            fill_block(content.add(), block)
        message.details_json = outcome.details_json
        message.terminate = outcome.terminate
        message.attempts = outcome.attempts
        message.recorded_call_id = outcome.recorded_call_id
        for each in outcome.coercions:
            message.coercions.add(pointer=each.pointer, rule=each.rule, message=each.message)
        if outcome.error is not None:
            message.is_error = True
            message.error.CopyFrom(error_message(outcome.error))
        if outcome.cached is not None:
            message.cached.call_id = outcome.cached.call_id
            set_duration(message.cached.age, outcome.cached.age_s)
        usage = outcome.usage
        if usage is not None:
            into = message.usage
            set_duration(into.wall_time, usage.wall_s)
            set_duration(into.queue_time, usage.queue_s)
            into.input_bytes = usage.input_bytes
            into.output_bytes = usage.output_bytes
            if usage.cpu_s is not None:
                set_duration(into.cpu_time, usage.cpu_s)
            into.peak_memory_bytes = usage.peak_memory_bytes
            into.source = usage.source
            if usage.egress_sent_bytes:
                into.egress_sent_bytes = usage.egress_sent_bytes
                into.egress_received_bytes = usage.egress_received_bytes
        if outcome.receipt is not None:
            message.sandbox.CopyFrom(self._receipt(outcome.receipt))

    def _receipt(self, receipt: Receipt) -> tool_pb2.SandboxReceipt:
        found = self._receipts.get(receipt)
        if found is not None:
            return found
        message = receipt_message(receipt)
        if self._unrecorded:
            message.layers.append(_UNRECORDED)
        self._receipts.keep(receipt, message)
        return message


def entry_fields(call_id: str, entry: Entry) -> dict[str, Any]:
    """What a call says on its way, as the one field that `StreamToolResponse` and `SessionResponse` have for it."""
    match entry:
        case CallRetry():
            return {"retry": retry_message(call_id, entry)}
        case CallApproval():
            return {"approval": approval_awaited(call_id, entry)}
        case CallQuestion():
            return {"question": question_message(call_id, entry)}
        case CallUpdate():
            return {"update": update_message(call_id, entry)}


def update_message(call_id: str, update: CallUpdate) -> tool_pb2.ToolUpdate:
    """The update of one call."""
    return tool_pb2.ToolUpdate(
        call_id=call_id,
        message=update.message,
        progress=update.progress,
        total=update.total,
        data_json=update.data_json,
        sequence=update.sequence,
        unit=update.unit,
    )


def retry_message(call_id: str, retry: CallRetry) -> tool_service_pb2.CallRetry:
    """Another attempt of one call."""
    message = tool_service_pb2.CallRetry(call_id=call_id, attempts=retry.attempt, error=error_message(retry.error))
    set_duration(message.delay, retry.delay_s)
    return message


def approval_awaited(call_id: str, approval: CallApproval) -> tool_pb2.ApprovalAwaited:
    """A call that waits for a person."""
    return tool_pb2.ApprovalAwaited(approval_id=approval.approval_id, call_id=call_id, tool=approval.tool)


def question_message(call_id: str, question: CallQuestion) -> tool_pb2.ToolQuestion:
    """What a call's tool asks."""
    message = tool_pb2.ToolQuestion(
        call_id=call_id,
        tool=question.tool,
        question_id=question.question_id,
        message=question.message,
        schema_json=question.schema_json,
    )
    set_duration(message.timeout, max(question.until - time.monotonic(), 0.0))
    return message


def receipt_message(receipt: Receipt) -> tool_pb2.SandboxReceipt:
    """What holds a worker."""
    return tool_pb2.SandboxReceipt(
        side_effects=SIDE_EFFECTS[receipt.level],
        isolation=tool_pb2.ISOLATION_CALL if receipt.one_call else tool_pb2.ISOLATION_PROCESS,
        backend=receipt.backend,
        layers=[
            tool_pb2.SandboxLayer(name=layer.name, detail=layer.detail, weaker=layer.weaker) for layer in receipt.layers
        ],
        policy_digest=receipt.policy_digest,
    )


def error_message(error: CallError, depth: int = 0) -> error_pb2.SystemError:
    """The error and its causes, within the limits of error.proto."""
    message = error_pb2.SystemError(
        code=error.code,
        category=CATEGORIES[error.code.category],
        retryable=error.retryable,
        message=error.message
        if len(error.message) <= MAX_MESSAGE_CHARS
        else error.message[: MAX_MESSAGE_CHARS - 1] + "…",
        details_json=_details(error.details),
    )
    if error.caused_by is not None and depth < MAX_CAUSES:
        message.caused_by.CopyFrom(error_message(error.caused_by, depth + 1))
    return message


def _details(details: Mapping[str, Any]) -> str:
    if not details:
        return ""
    try:
        data = orjson.dumps(dict(details), default=str)
    except TypeError:  # what was nested or encoded in a way that can't be written: an outcome is told all the same
        data = b""
    if not 0 < len(data) <= MAX_DETAILS_BYTES:
        # What programs switch on is kept; the rest is for people, who have the log.
        kept = {key: printable(details[key])[:_MAX_KEPT_CHARS] for key in _KEPT if isinstance(details.get(key), str)}
        kept |= {key: details[key] for key in _KEPT if isinstance(details.get(key), int | float)}
        data = orjson.dumps({**kept, "truncated": True}, default=str)
    return data.decode()
