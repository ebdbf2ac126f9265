"""`GetCall` and `ResolveCall`: calls by their ids, under way or recorded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.calls import Call
from fumehood_server.calls.resolution import Resolution
from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Caller, sees_call
from fumehood_server.model.content_messages import read_block
from fumehood_server.model.recorded import RecordedCall, RecordedState
from fumehood_server.rpc.authentication import asking
from fumehood_server.validation.strict_json import JsonError, parse

if TYPE_CHECKING:
    from fumehood_server.rpc.server_context import ServerContext

_LOOK_S = 0.5
_MAX_ID_CHARS = 128
_MAX_NAME_BYTES = 256
_MAX_REASON_BYTES = 4096
_MAX_RESULT_BYTES = 64 * 1024
_MICROSECONDS = 1_000_000
MAX_GET_CALL_BYTES = 4 * 1024
"""Of a request, which has an id: thousands may wait."""
MAX_BLOCKS = 1_024
"""As many as a tool may return."""
MAX_RESOLUTION_FIELDS = 12_288
"""Fields of a long resolution: as many blocks of which everything is said have 10,240."""
STATES = {
    RecordedState.RUNNING: pb.CALL_STATE_RUNNING,
    RecordedState.ENDED: pb.CALL_STATE_ENDED,
    RecordedState.UNKNOWN: pb.CALL_STATE_OUTCOME_UNKNOWN,
    RecordedState.RESOLVED: pb.CALL_STATE_RESOLVED,
    RecordedState.INTERRUPTED: pb.CALL_STATE_INTERRUPTED,
}


async def get_call(server: ServerContext, request: pb.GetCallRequest, caller: Caller) -> pb.GetCallResponse:
    """Where a call stands, or how it ended.

    Raises:
        RefusedError: nothing is known of it, it is another caller's, or the journal can't be read.
    """
    call_id = _checked_id(request.call_id)
    call = server.executor.find(call_id)
    if call is not None:
        _check_seen(server, caller, call_id, call.request.caller)
        if not request.wait:
            return _running(call)
    with server.reader.for_outcomes.take(asking()) if request.wait else contextlib.nullcontext():
        if call is not None:
            await call.outcome()
        return await _recorded(server, call_id, caller, wait=request.wait)


async def _recorded(server: ServerContext, call_id: str, caller: Caller, *, wait: bool) -> pb.GetCallResponse:
    while True:
        async with server.executor.repeats.turn(caller.recorded):
            recorded = await _find(server, call_id)
            _check_seen(server, caller, call_id, recorded.caller)
            await server.executor.repeats.pause(recorded.outcome)
        if not wait or recorded.state is not RecordedState.RUNNING or not server.journal.shared:
            break
        await asyncio.sleep(_LOOK_S)  # another sidecar runs it; gRPC ends this at the caller's deadline
    response = pb.GetCallResponse(
        state=STATES[recorded.state],
        tool=recorded.tool,
        result_removed=recorded.outcome is not None and recorded.removed,
    )
    response.started_at.FromMicroseconds(recorded.started_us)
    if recorded.outcome is not None:
        server.results.fill(response.result, recorded.outcome)
    return response


async def resolve_call(server: ServerContext, request: pb.ResolveCallRequest) -> pb.ResolveCallResponse:
    """Settle an outcome that nobody knows.

    Raises:
        RefusedError: the request is wrong, the outcome is known, or it can't be recorded.
    """
    resolution, call_id = _read(request), _checked_id(request.call_id)
    _check_recording(server)
    try:
        outcome = await server.resolver.resolve(call_id, resolution)
    except JournalUnavailableError as exc:
        raise _unavailable(exc) from exc
    if outcome is None:
        raise _not_found(call_id)
    response = pb.ResolveCallResponse()
    server.results.fill(response.result, outcome)
    return response


def _check_seen(server: ServerContext, caller: Caller, call_id: str, recorded: str) -> None:
    """Answer as if there were no such call, where it is another caller's."""
    if not sees_call(server.callers, caller, recorded):
        raise _not_found(call_id)


def _running(call: Call) -> pb.GetCallResponse:
    response = pb.GetCallResponse(state=pb.CALL_STATE_RUNNING, tool=call.request.tool)
    age_s = time.monotonic() - call.admitted_at
    response.started_at.FromMicroseconds(round((time.time() - age_s) * _MICROSECONDS))
    return response


async def _find(server: ServerContext, call_id: str) -> RecordedCall:
    _check_recording(server)
    try:
        recorded = await server.journal.find(call_id)
    except JournalUnavailableError as exc:
        raise _unavailable(exc) from exc
    if recorded is None:
        raise _not_found(call_id)
    return recorded


def _check_recording(server: ServerContext) -> None:
    if not server.journal.recording:
        text = 'this sidecar records nothing: its operator has switched that off ([journal] store = "off")'
        raise RefusedError(Refusal(RefusalReason.JOURNAL_OFF, text))


def _not_found(call_id: str) -> RefusedError:
    text = f'no call with the id "{call_id}" is under way or recorded'
    return RefusedError(Refusal(RefusalReason.CALL_NOT_FOUND, text))


def _read(request: pb.ResolveCallRequest) -> Resolution:
    if request.resolution not in {pb.RESOLUTION_EXECUTED, pb.RESOLUTION_NOT_EXECUTED}:
        raise _invalid("resolution is required: RESOLUTION_EXECUTED or RESOLUTION_NOT_EXECUTED")
    for name, text, limit in (
        ("resolved_by", request.resolved_by, _MAX_NAME_BYTES),
        ("reason", request.reason, _MAX_REASON_BYTES),
    ):
        if not text.strip():
            raise _invalid(f"{name} is required")
        if len(text.encode()) > limit:
            raise _invalid(f"{name} is longer than {limit} bytes")
    if len(request.content) > MAX_BLOCKS:
        raise _invalid(f"content has more than {MAX_BLOCKS:,} blocks")
    if request.ByteSize() > _MAX_RESULT_BYTES + _MAX_REASON_BYTES + _MAX_NAME_BYTES:
        raise _invalid(f"content and details_json are longer than {_MAX_RESULT_BYTES} bytes")
    executed = request.resolution == pb.RESOLUTION_EXECUTED
    if not executed and (request.content or request.details_json):
        raise _invalid("a call that was not executed returned nothing")
    if request.details_json:
        try:
            parse(request.details_json)
        except JsonError as exc:
            raise _invalid(f"details_json {exc.problem}") from exc
    return Resolution(
        executed=executed,
        content=tuple(block for each in request.content if (block := read_block(each)) is not None),
        details_json=request.details_json,
        by=request.resolved_by,
        reason=request.reason,
    )


def _checked_id(call_id: str) -> str:
    if not call_id:
        raise _invalid("call_id is required")
    if len(call_id) > _MAX_ID_CHARS:
        raise _invalid(f"call_id is longer than {_MAX_ID_CHARS} characters")
    return call_id


def _invalid(message: str) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.REQUEST_INVALID, message))


def _unavailable(error: JournalUnavailableError) -> RefusedError:
    return RefusedError(Refusal(RefusalReason.JOURNAL_UNAVAILABLE, f"the journal can't be used: {error}"))
