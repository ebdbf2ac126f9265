"""The step between two attempts of a call: whether another one may follow, and the exponential backoff before it."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound
from fumehood_server.model.call import CallError, CallRetry
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.retries import RetryConfig, backoff_s
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.model.tool import safe_to_repeat

_OF_ONE_ATTEMPT = (Bound.TOOL, Bound.IDLE)


def attempts_allowed(call: Call, tool: RegisteredTool, config: RetryConfig) -> int:
    """Most attempts of the call. 1 where running the tool twice is not the same as running it once."""
    definition = tool.definition
    if not safe_to_repeat(definition.side_effects, idempotent=definition.idempotent):
        return 1
    return config.attempts(call.request.max_attempts)


def is_transient(error: CallError) -> bool:
    """Whether another attempt, unchanged, may succeed. Only for a tool that may run twice.

    A worker that died with a call of a tool with effects leaves an unknown outcome, which is not for callers to repeat;
    here the tool says that it may be.
    """
    if error.code.category is Category.CANCELLATION or error.details.get("phase") == "shutdown":
        return False
    if error.details.get("bound", Bound.TOOL) not in _OF_ONE_ATTEMPT:  # the call's own time is over
        return False
    if error.code is Code.TOOL_OUTCOME_UNKNOWN:
        return error.caused_by is not None and error.caused_by.retryable
    return error.retryable


def delay_s(call: Call, tool: RegisteredTool, error: CallError, failures: int) -> float | None:
    """How long to wait after so many failures in a row. None: the call's time ends before, or the wait is too long.

    `details.retry_after_s` of the error, which is the tool's word, can lengthen the wait, up to the time that a call
    may wait for a worker.
    """
    wait_s = backoff_s(failures, error.details.get("retry_after_s"))
    now = time.monotonic()
    deadline = call.deadline(Bound.WAIT, now, max(MIN_WAIT_S, tool.timeout_s))
    return wait_s if wait_s < deadline.at - now else None


async def wait_before_retry(call: Call, tool: RegisteredTool, retry: CallRetry) -> None:
    """Tell whoever watches the call that another attempt follows, and wait for its time. Nothing is held meanwhile.

    Raises:
        EndedEarlyError: the call was cancelled or met its deadline.
    """
    call.updates.put(replace(retry, error=replace(retry.error, details={}, caused_by=None)))
    deadline = call.deadline(Bound.WAIT, time.monotonic(), max(MIN_WAIT_S, tool.timeout_s))
    await call.wait_for(functools.partial(asyncio.sleep, retry.delay_s), deadline)


__all__ = ["attempts_allowed", "delay_s", "is_transient", "wait_before_retry"]
