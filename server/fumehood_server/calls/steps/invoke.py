"""The step of a call that has a worker run it, and ends it there when its time is over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from fumehood_server.calls.call import Call
from fumehood_server.calls.cancellation import after_dispatch
from fumehood_server.calls.deadlines import Bound, Deadline
from fumehood_server.calls.errors import EndedEarlyError
from fumehood_server.calls.progress import Progress
from fumehood_server.model.call import CallContext, CallError, CallRequest, CallUpdate
from fumehood_server.model.call_inputs import CallInputs
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import safe_to_repeat
from fumehood_server.model.worker import Attempt, CancelReason, Invocation, InvocationResult, Worker

_LOOK_AGAIN_S = 1.0
"""Between two looks at a call that waits for people, and whose tool's timeout stands still."""

RELEASE_S = 15.0
"""How long a call waits for its worker to let go of it: above a worker's own bounds, so reached by a fault of ours."""


async def invoke_tool(
    call: Call,
    tool: RegisteredTool,
    worker: Worker,
    progress: Progress,
    *,
    release_s: float,
    max_recorded_bytes: int = 0,
    inputs: CallInputs | None = None,
) -> InvocationResult:
    """Send the call and wait for its result. A call that is cancelled or meets its deadline is ended at the worker.

    It then has its outcome when the worker has let go of it, within `release_s`: the outcome so says by what means it
    ended, and nothing of it runs on.

    Raises:
        EndedEarlyError: the call was over before it was sent.
    """
    now = time.monotonic()
    deadline = call.deadline(Bound.TOOL, now, tool.timeout_s)
    call.raise_if_over(deadline)
    updates, wanted, earlier_updates = call.updates, True, progress.updates
    idle = None if tool.idle_timeout_s is None else IdleTimer(tool.idle_timeout_s, now, call)

    def hand_on(update: CallUpdate) -> None:
        if idle is not None:
            idle.since = time.monotonic()
        if wanted:
            updates.put(replace(update, sequence=update.sequence + earlier_updates) if earlier_updates else update)

    attempt = worker.invoke(
        Invocation(
            call_id=call.request.call_id,
            tool=tool.definition.name,
            arguments_json=progress.arguments_json,
            context=_context(call.request),
            attempt=progress.attempts + 1,
            timeout_s=deadline.at - now,
            # Whoever knows its id may ask for updates later.
            on_update=hand_on if updates.keeps or call.request.is_named or idle is not None else None,
            max_recorded_bytes=max_recorded_bytes,
            trace=call.request.trace,
            about=call.about,
            inputs=inputs,
        )
    )
    progress.worker_id, progress.receipt = worker.worker_id, worker.receipt
    progress.dispatched_at = progress.dispatched_at or now
    progress.sent += 1
    updates.throttle(attempt.hold_updates)
    try:
        return await _result(call, attempt, ToolTimer(call, now, tool.timeout_s), idle)
    except EndedEarlyError as early:
        if attempt.ended:  # in the same iteration of the loop: its result stands
            return await attempt.result()
        error, reason = early.error, early.reason
    finally:
        wanted = False
        updates.throttle(None)
        progress.updates = earlier_updates + attempt.updates
    result = await end_attempt(attempt, reason, tool, release_s)
    progress.updates = earlier_updates + attempt.updates
    told = {"ended_by": "result"} if result.error is None else result.error.details
    return replace(result, content=(), details_json="", terminate=False, error=after_dispatch(tool, error, told))


class ToolTimer:
    """When the attempt's time is over. The tool's own timeout stands still while the call waits for people."""

    __slots__ = ("_call", "_since", "_timeout_s", "_waited_s")

    def __init__(self, call: Call, since: float, timeout_s: float) -> None:
        """`since` is on the event loop's clock."""
        self._call = call
        self._since = since
        self._timeout_s = timeout_s
        self._waited_s = call.questions.waited_s

    def deadline(self) -> Deadline:
        """When it is over unless somebody is asked before: while somebody is, it is looked at again in a while."""
        questions = self._call.questions
        since = self._since + questions.waited_s - self._waited_s
        if questions.waits:
            since += _LOOK_AGAIN_S
        return self._call.deadline(Bound.TOOL, since, self._timeout_s)


class IdleTimer:
    """When the attempt's tool was last heard of."""

    __slots__ = ("_call", "limit_s", "since")

    def __init__(self, limit_s: float, since: float, call: Call) -> None:
        """`since` is on the event loop's clock."""
        self._call = call
        self.limit_s = limit_s
        self.since = since

    def deadline(self) -> Deadline:
        """When it is over unless the tool is heard of before. One that is held, or waits for people, can't be heard."""
        if self._call.updates.held or self._call.questions.waits:
            self.since = time.monotonic()
        return Deadline(self.since + self.limit_s, Bound.IDLE, self.limit_s)


async def _result(call: Call, attempt: Attempt, timer: ToolTimer, idle: IdleTimer | None) -> InvocationResult:
    """Wait for the result as long as `timer` says, and no longer without an update than `idle` allows.

    Raises:
        EndedEarlyError: the call was cancelled or met either of them.
    """
    while True:
        deadline = _first(timer, idle)
        try:
            return await call.wait_for(attempt.result, deadline)
        except EndedEarlyError:
            if call.cancellation is not None or attempt.ended or _first(timer, idle).at <= deadline.at:
                raise


def _first(timer: ToolTimer, idle: IdleTimer | None) -> Deadline:
    deadline = timer.deadline()
    if idle is not None and (silent := idle.deadline()).at < deadline.at:
        return silent
    return deadline


def _context(request: CallRequest) -> CallContext:
    """What the plugin is told: where calls are traced, its attempt's span, beneath which its own belong."""
    trace = request.trace
    if trace is None:
        return request.context
    return replace(
        request.context, trace_id=trace.trace_id, span_id=trace.attempt_span_id, parent_span_id=trace.span_id
    )


async def end_attempt(
    attempt: Attempt, reason: CancelReason, tool: RegisteredTool, release_s: float
) -> InvocationResult:
    """Have the worker end the attempt, and wait for that, no longer than `release_s`."""
    try:
        async with asyncio.timeout(release_s):
            return await attempt.end(reason)
    except (TimeoutError, asyncio.CancelledError):  # the latter where the task's group or loop is ended
        nothing_changed = safe_to_repeat(tool.definition.side_effects)
        error = CallError(
            code=Code.TOOL_OUTCOME_UNKNOWN,
            message="the worker has not let go of the call",
            details={} if nothing_changed else {"outcome_unknown": True},
        )
        return InvocationResult(content=(), details_json="", terminate=False, error=error, output_bytes=0)
