"""The step that has the plugin turn what the caller sent into the schema's shape, in a process of level `none`."""

from __future__ import annotations

import time

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound
from fumehood_server.calls.errors import EndedEarlyError, StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.invoke import end_attempt
from fumehood_server.calls.steps.recall import asked_hash
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import Invocation, InvocationResult, Worker, WorkerPools

PREPARE_S = 10.0
"""Longest that a plugin may take. It has nothing to wait for: no file, no host, no secret."""

MAX_PREPARED_BYTES = 1024 * 1024
"""What it makes may be as long as this, or as what the caller sent where that is longer."""

REASON = "prepare_arguments_failed"


async def ask_plugin_to_prepare(
    call: Call, tool: RegisteredTool, progress: Progress, pools: WorkerPools, *, release_s: float
) -> str | None:
    """What the plugin makes of the arguments, yet to be validated. None: the tool takes them as they are.

    It is asked before anybody has permitted the call, so nothing that the tool is granted is within its reach.

    Raises:
        EndedEarlyError: the call was cancelled or met a deadline before.
        StepFailedError: it made nothing of them.
    """
    spec = tool.prepares
    if spec is None:
        return None
    progress.asked_hash = asked_hash(call.request.arguments_json)
    try:
        result = await _ask(call, tool, spec, pools, release_s)
    except WorkerUnavailableError as exc:
        raise StepFailedError(_failed(tool, exc.error.message, exc.error)) from exc
    if result.error is not None:
        raise StepFailedError(_failed(tool, result.error.message, result.error))
    size = len(result.details_json.encode())
    most = max(MAX_PREPARED_BYTES, len(call.request.arguments_json.encode()))
    if not size:
        raise StepFailedError(_failed(tool, "it returned nothing"))
    if size > most:
        raise StepFailedError(_failed(tool, f"it returned {size:,} bytes, and {most:,} are allowed"))
    return result.details_json


async def _ask(
    call: Call, tool: RegisteredTool, spec: WorkerSpec, pools: WorkerPools, release_s: float
) -> InvocationResult:
    deadline = call.deadline(Bound.WAIT, time.monotonic(), max(MIN_WAIT_S, tool.timeout_s))
    lease = pools.try_acquire(spec)
    if lease is None:
        lease = await call.wait_for(lambda: pools.acquire(spec), deadline)
    try:
        return await _answer(call, tool, lease.worker, release_s)
    finally:
        lease.release()


async def _answer(call: Call, tool: RegisteredTool, worker: Worker, release_s: float) -> InvocationResult:
    now = time.monotonic()
    deadline = call.deadline(Bound.PREPARE, now, PREPARE_S)
    call.raise_if_over(deadline)
    attempt = worker.invoke(
        Invocation(
            call_id=call.request.call_id,
            tool=tool.definition.name,
            arguments_json=call.request.arguments_json or "{}",
            context=call.request.context,
            attempt=0,
            timeout_s=deadline.at - now,
            on_update=None,
            prepares=True,
        )
    )
    try:
        return await call.wait_for(attempt.result, deadline)
    except EndedEarlyError as early:
        if attempt.ended:
            return await attempt.result()
        await end_attempt(attempt, early.reason, tool, release_s)
        if call.cancellation is None and deadline.bound is Bound.PREPARE:
            raise StepFailedError(_failed(tool, f"it did not answer within {PREPARE_S:g} s")) from None
        raise


def _failed(tool: RegisteredTool, problem: str, cause: CallError | None = None) -> CallError:
    return CallError(
        code=Code.TOOL_EXECUTION_FAILED,
        message=f"{tool.name} could not prepare its arguments: {problem}",
        retryable=cause is not None and cause.retryable,
        details={"reason": REASON, "plugin": tool.plugin},
        caused_by=cause,
    )
