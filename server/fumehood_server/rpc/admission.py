"""Reads requests for calls, and refuses those that are wrong in themselves."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.call import CallContext, CallRequest
from fumehood_server.model.caller import Caller
from fumehood_server.model.durations import duration_s
from fumehood_server.model.trace import TraceContext
from fumehood_server.telemetry import TraceStarter

MAX_CONTEXT_BYTES = 256
MAX_NAME_BYTES = 256
"""A tool's name is echoed in results and logs. No tool has one longer than 64."""

CALL_TOOL, STREAM_TOOL, CALL_TOOLS, SESSION = (
    f"fumehood.v1.ToolService/{name}" for name in ("CallTool", "StreamTool", "CallTools", "Session")
)

CameBy = tuple[str, Callable[[], Iterable[tuple[str, str | bytes]] | None]]
"""The method that brings a call, one of those above, and what returns its gRPC metadata."""

_CALL_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_WIDEST_CHARACTER_BYTES = 4
_RANDOM_BYTES = 10
"""80 bits can't be guessed while a call is under way."""
_TIME_BYTES = 6
_NANOS_A_MILLISECOND = 1_000_000
_NANOS = 1_000_000_000


class Admission:
    """Makes call requests. Ids that the caller left out are random: who knows a call's id may cancel it."""

    __slots__ = ("_max_arguments_bytes", "_traces")

    def __init__(self, *, max_arguments_bytes: int, traces: TraceStarter | None = None) -> None:
        """`max_arguments_bytes` bounds the arguments' text of one call. `traces` None: calls are not traced."""
        self._max_arguments_bytes = max_arguments_bytes
        self._traces = traces

    def read_request(
        self, request: pb.CallToolRequest, caller_deadline: float | None, *, caller: Caller, came_by: CameBy
    ) -> CallRequest:
        """The request as ours.

        Raises:
            RefusedError: it is wrong in itself.
        """
        tool, arguments, call_id = request.tool, request.arguments_json, request.call_id
        if not tool:
            raise _invalid("tool is required")
        if _too_long(tool, MAX_NAME_BYTES):
            raise _invalid(f"tool is longer than {MAX_NAME_BYTES} bytes")
        if _too_long(arguments, self._max_arguments_bytes):
            raise _invalid(f"arguments_json is longer than {self._max_arguments_bytes} bytes")
        is_named = bool(call_id)
        if not is_named:
            call_id = f"call-{new_id()}"
        elif _CALL_ID.fullmatch(call_id) is None:
            raise _invalid("call_id must be 1 to 128 characters of [A-Za-z0-9._:-]")
        timeout_s = None
        if request.HasField("timeout"):
            seconds, nanos = request.timeout.seconds, request.timeout.nanos
            timeout_s = duration_s(request.timeout)
            if timeout_s <= 0:
                raise _invalid("timeout must be positive")
            if seconds < 0 or not 0 <= nanos < _NANOS:  # google/protobuf/duration.proto: of one sign, less than 1 s
                raise _invalid("timeout is no duration: its nanos must be from 0 to 999,999,999")
        again_after_crash = request.HasField("retry") and request.retry.after_crash
        if not is_named:
            _check_not_again(request, again_after_crash=again_after_crash)
        max_attempts = request.retry.max_attempts if request.HasField("retry") else 0
        context, trace = self.correlation(_context(request.context), came_by)
        return CallRequest(
            call_id=call_id,
            is_named=is_named,
            tool=tool,
            arguments_json=arguments,
            context=context,
            timeout_s=timeout_s,
            caller_deadline=None if request.continue_if_disconnected else caller_deadline,
            max_attempts=max_attempts,
            again_after_crash=again_after_crash,
            caller=caller.recorded,
            identity=caller,
            return_if_approval_required=request.return_if_approval_required,
            continues=request.continue_if_disconnected,
            takes_questions=_takes_questions(request, came_by),
            trace=trace,
        )

    def correlation(self, context: CallContext, came_by: CameBy) -> tuple[CallContext, TraceContext | None]:
        """What a request belongs to, with its trace. None: requests are not traced."""
        if self._traces is None:
            return context, None
        method, metadata = came_by
        trace = self._traces.start(method, metadata() or (), context, in_stream=method in (CALL_TOOLS, SESSION))
        if not context.trace_id:  # so that logs and records lead to the trace
            context = replace(
                context, trace_id=trace.trace_id, span_id=trace.span_id, parent_span_id=trace.parent_span_id
            )
        return context, trace


def caller_deadline(remaining_s: float | None) -> float | None:
    """GRPC's time remaining as a deadline on the running loop's clock. None: the caller set none."""
    return None if remaining_s is None else time.monotonic() + remaining_s


def _context(context: tool_pb2.CallContext) -> CallContext:
    found = {}
    for descriptor, value in context.ListFields():
        if _too_long(value, MAX_CONTEXT_BYTES):
            raise _invalid(f"context.{descriptor.name} is longer than {MAX_CONTEXT_BYTES} bytes")
        found[descriptor.name] = value
    if "request_id" not in found:
        found["request_id"] = f"req-{new_id()}"
    return CallContext(**found)


def new_id() -> str:
    """In the order of time, as UUIDs of version 7 are (RFC 9562): a database's index then grows at its end alone."""
    milliseconds = time.time_ns() // _NANOS_A_MILLISECOND
    return (milliseconds.to_bytes(_TIME_BYTES, "big") + os.urandom(_RANDOM_BYTES)).hex()


def _too_long(text: str, limit_bytes: int) -> bool:
    if len(text) * _WIDEST_CHARACTER_BYTES <= limit_bytes:  # it is not copied to be measured: 30 µs of 1 MiB
        return False
    return len(text) > limit_bytes or len(text.encode()) > limit_bytes


def _check_not_again(request: pb.CallToolRequest, *, again_after_crash: bool) -> None:
    """Refuse what asks for a call to be sent again, without an id to send it by."""
    for name, asked in (
        ("retry.after_crash", again_after_crash),
        ("return_if_approval_required", request.return_if_approval_required),
        ("continue_if_disconnected", request.continue_if_disconnected),
    ):
        if asked:
            raise _invalid(f"{name} needs a call_id, by which the call is sent again")


def _takes_questions(request: pb.CallToolRequest, came_by: CameBy) -> bool:
    if request.takes_questions and came_by[0] not in (STREAM_TOOL, SESSION):
        raise _invalid("takes_questions needs a stream that the questions come by: StreamTool or Session")
    return request.takes_questions


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))
