"""The attempts of one call: one worker each, with backoff between them."""

from __future__ import annotations

import time
from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.dependencies import CallDependencies
from fumehood_server.calls.errors import EndedEarlyError, StepFailedError
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.acquire import acquire_worker
from fumehood_server.calls.steps.inputs import StepInputs
from fumehood_server.calls.steps.invoke import invoke_tool
from fumehood_server.calls.steps.retry import attempts_allowed, delay_s, is_transient, wait_before_retry
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError, CallRetry
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import InvocationResult


async def run_attempts(
    call: Call, needs: CallDependencies, progress: Progress, tool: RegisteredTool, spec: WorkerSpec
) -> InvocationResult:
    """The result of the last attempt: of the first that succeeds, or can't be followed by another one.

    Raises:
        StepFailedError: the call ended before an attempt, or between two.
        WorkerUnavailableError: there was no worker for the last one.
    """
    allowed = attempts_allowed(call, tool, needs.retries())
    failures = 0
    error: CallError | None = None
    since = call.ready_at
    while True:
        unavailable: WorkerUnavailableError | None = None
        try:
            result = await _attempt(call, needs, progress, tool, spec, since=since, retried=allowed > 1)
            error = result.error
        except WorkerUnavailableError as exc:
            unavailable, error = exc, exc.error
        except EndedEarlyError as early:
            raise (early if error is None else StepFailedError(replace(early.error, caused_by=error))) from None
        failures += 1
        wait_s = None
        if error is not None and progress.earlier_attempts + failures < allowed and is_transient(error):
            wait_s = delay_s(call, tool, error, failures)
        if error is None or wait_s is None:
            if unavailable is not None:
                raise unavailable
            return result
        if error.code is Code.TOOL_OUTCOME_UNKNOWN or error.details.get("outcome_unknown"):
            progress.in_doubt = error
        await needs.records.retry(call, progress, error, wait_s)
        progress.result = None
        try:
            await wait_before_retry(call, tool, CallRetry(attempt=progress.attempts, error=error, delay_s=wait_s))
        except EndedEarlyError as early:
            raise StepFailedError(replace(early.error, caused_by=error)) from None
        since = time.monotonic()


async def _attempt(
    call: Call,
    needs: CallDependencies,
    progress: Progress,
    tool: RegisteredTool,
    spec: WorkerSpec,
    *,
    since: float,
    retried: bool,
) -> InvocationResult:
    """One attempt, on a worker that is the call's for so long."""
    again = progress.sent > 0
    with await acquire_worker(call, tool, spec, needs.pools, needs.turns, since=since, again=again) as worker:
        await needs.records.attempt(call, progress, worker.worker_id, worker.receipt, retried=retried)
        result = progress.result = await invoke_tool(
            call,
            tool,
            worker,
            progress,
            release_s=needs.release_s,
            max_recorded_bytes=needs.records.max_value_bytes(tool),
            inputs=StepInputs(call, tool, progress, needs.inputs),
        )
    progress.spent.add(result)
    return result
