"""The one table from why a request is refused to the gRPC status that says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

import grpc
import orjson
from fumehood.v1 import error_pb2
from fumehood.v1 import tool_service_pb2 as pb
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.code_pb2 import Code as RpcCode
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.taxonomy import Category

_Answer = TypeVar("_Answer")
_Context = grpc.aio.ServicerContext[Any, Any]

DOMAIN = "fumehood"
"""`domain` of every `google.rpc.ErrorInfo` (AIP-193)."""
_MAX_CALL_ID_CHARS = 128
"""As long as one may be that is admitted: what a refused request says instead may be of any length."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a refusal becomes."""

    code: grpc.StatusCode
    retryable: bool
    category: Category


REFUSALS: dict[RefusalReason, Row] = {
    RefusalReason.UNAUTHENTICATED: Row(grpc.StatusCode.UNAUTHENTICATED, retryable=False, category=Category.TOOL),
    RefusalReason.CALLER_DENIED: Row(grpc.StatusCode.PERMISSION_DENIED, retryable=False, category=Category.TOOL),
    RefusalReason.REQUEST_INVALID: Row(grpc.StatusCode.INVALID_ARGUMENT, retryable=False, category=Category.TOOL),
    RefusalReason.PAGE_TOKEN_INVALID: Row(grpc.StatusCode.INVALID_ARGUMENT, retryable=False, category=Category.TOOL),
    RefusalReason.TOOL_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.TOOL),
    RefusalReason.PLUGIN_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.TOOL),
    RefusalReason.QUESTION_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.TOOL),
    RefusalReason.CALL_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.TOOL),
    RefusalReason.CALL_ID_IN_USE: Row(grpc.StatusCode.ALREADY_EXISTS, retryable=False, category=Category.TOOL),
    RefusalReason.RETRY_REFUSED: Row(grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.TOOL),
    RefusalReason.OUTCOME_KNOWN: Row(grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.TOOL),
    RefusalReason.RUN_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.TOOL),
    RefusalReason.RUN_NOT_FORKABLE: Row(grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.TOOL),
    RefusalReason.RUN_ID_IN_USE: Row(grpc.StatusCode.ALREADY_EXISTS, retryable=False, category=Category.ORCHESTRATION),
    RefusalReason.RUN_NOT_RESUMABLE: Row(
        grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.ORCHESTRATION
    ),
    RefusalReason.RUN_NOT_STEERABLE: Row(
        grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.ORCHESTRATION
    ),
    RefusalReason.RUN_SUSPENDED: Row(grpc.StatusCode.ABORTED, retryable=True, category=Category.ORCHESTRATION),
    RefusalReason.TOO_MANY_RUNS: Row(
        grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=True, category=Category.ORCHESTRATION
    ),
    RefusalReason.SESSION_REFUSED: Row(
        grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.ORCHESTRATION
    ),
    RefusalReason.RUN_ELSEWHERE: Row(grpc.StatusCode.UNAVAILABLE, retryable=True, category=Category.ORCHESTRATION),
    RefusalReason.FORK_MISMATCH: Row(grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.TOOL),
    RefusalReason.REPLAY_FAILED: Row(grpc.StatusCode.UNAVAILABLE, retryable=True, category=Category.TOOL),
    RefusalReason.JOURNAL_OFF: Row(
        grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.CONFIGURATION
    ),
    RefusalReason.JOURNAL_UNAVAILABLE: Row(
        grpc.StatusCode.UNAVAILABLE, retryable=True, category=Category.CONFIGURATION
    ),
    RefusalReason.APPROVAL_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.TOOL),
    RefusalReason.APPROVAL_NOT_ALLOWED: Row(grpc.StatusCode.PERMISSION_DENIED, retryable=False, category=Category.TOOL),
    RefusalReason.APPROVAL_CLOSED: Row(grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.TOOL),
    RefusalReason.APPROVAL_CHANGED: Row(grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.TOOL),
    RefusalReason.HOOK_NOT_FOUND: Row(grpc.StatusCode.NOT_FOUND, retryable=False, category=Category.CONFIGURATION),
    RefusalReason.HOOK_UNRESPONSIVE: Row(
        grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=True, category=Category.CONFIGURATION
    ),
    RefusalReason.TOO_MANY_CALLS: Row(grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=True, category=Category.TOOL),
    RefusalReason.ANSWERS_UNREAD: Row(grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=True, category=Category.TOOL),
    # The call has run: nobody may take this for leave to repeat it.
    RefusalReason.ANSWER_DROPPED: Row(grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=False, category=Category.TOOL),
    RefusalReason.REQUEST_INCOMPLETE: Row(grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=True, category=Category.TOOL),
    RefusalReason.TOO_MANY_STREAMS: Row(grpc.StatusCode.RESOURCE_EXHAUSTED, retryable=True, category=Category.TOOL),
    RefusalReason.DRAINING: Row(grpc.StatusCode.UNAVAILABLE, retryable=True, category=Category.TOOL),
    RefusalReason.RELOAD_REFUSED: Row(
        grpc.StatusCode.FAILED_PRECONDITION, retryable=False, category=Category.CONFIGURATION
    ),
    RefusalReason.STATE_UNWRITABLE: Row(
        grpc.StatusCode.FAILED_PRECONDITION, retryable=True, category=Category.CONFIGURATION
    ),
    RefusalReason.INTERNAL: Row(grpc.StatusCode.INTERNAL, retryable=False, category=Category.ORCHESTRATION),
}

CATEGORIES: dict[Category, error_pb2.FailureCategory.ValueType] = {
    Category.INFERENCE: error_pb2.FAILURE_CATEGORY_INFERENCE,
    Category.TOOL: error_pb2.FAILURE_CATEGORY_TOOL,
    Category.CONSTRAINT: error_pb2.FAILURE_CATEGORY_CONSTRAINT,
    Category.VALIDATION: error_pb2.FAILURE_CATEGORY_VALIDATION,
    Category.ORCHESTRATION: error_pb2.FAILURE_CATEGORY_ORCHESTRATION,
    Category.CONFIGURATION: error_pb2.FAILURE_CATEGORY_CONFIGURATION,
    Category.CANCELLATION: error_pb2.FAILURE_CATEGORY_CANCELLATION,
}


def aborting(method: Callable[[Any, _Context], Awaitable[_Answer]]) -> Callable[[Any, _Context], Awaitable[_Answer]]:
    """The method with its RefusedError as a status."""

    async def answered(request: Any, context: _Context) -> _Answer:  # noqa: ANN401 - what gRPC hands to the method
        try:
            return await method(request, context)
        except RefusedError as exc:
            refusal = exc.refusal
        # Out of the handler above: gRPC keeps what aborts a call, with every frame that it leads to, until the garbage
        # collector comes by, and the method's frames hold requests and answers.
        return await _abort(context, refusal)

    return answered


async def _abort(context: _Context, refusal: Refusal) -> NoReturn:
    """End a call with the status of `refusal` and its `ErrorInfo`."""
    row = REFUSALS[refusal.reason]
    detail = AnyMessage()
    detail.Pack(ErrorInfo(reason=refusal.reason, domain=DOMAIN, metadata=refusal.metadata))
    status = Status(code=RpcCode.Value(row.code.name), message=refusal.message, details=[detail])
    await context.abort(row.code, refusal.message, rpc_status.to_status(status).trailing_metadata)
    raise AssertionError("abort raises")


def session_refusal(refusal: Refusal, kind: pb.SessionRequestKind.ValueType, call_id: str) -> pb.SessionRefusal:
    """The refusal of one of many requests, whose stream goes on. `call_id`: as the caller gave it, however long."""
    row = REFUSALS[refusal.reason]
    error = error_pb2.SystemError(
        code=refusal.reason,
        category=CATEGORIES[row.category],
        retryable=row.retryable,
        message=refusal.message,
        details_json=orjson.dumps(dict(refusal.metadata)).decode() if refusal.metadata else "",
    )
    status_code: int = row.code.value[0]
    return pb.SessionRefusal(call_id=call_id[:_MAX_CALL_ID_CHARS], status_code=status_code, error=error, kind=kind)


def first_refusal(group: ExceptionGroup[RefusedError]) -> Refusal:
    """The refusal that a group of tasks ended with."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return cast("RefusedError", error).refusal
