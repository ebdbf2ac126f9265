"""One call under way: its steps in the order in which they run, and the one end that it has."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any

from structlog.typing import FilteringBoundLogger

from fumehood_server.calls.registry import Registry
from fumehood_server.calls.schemas import Validators
from fumehood_server.calls.steps.cancellation import cancelled, stopped
from fumehood_server.calls.steps.check import Checked, check_result, show
from fumehood_server.calls.steps.deadlines import MIN_WAIT_S, Bound, Deadline, first_deadline
from fumehood_server.calls.steps.find import Tools, find_tool
from fumehood_server.calls.steps.outcome_log import log_outcome
from fumehood_server.calls.steps.permit import check_permission
from fumehood_server.calls.steps.prepare import prepare_arguments
from fumehood_server.calls.steps.turn import SequentialGate
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError, CallOutcome, CallRequest, CallUpdate, Usage
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import ExecutionMode
from fumehood_server.model.worker import (
    CancelReason,
    Invocation,
    InvocationHandle,
    InvocationResult,
    WorkerLease,
    WorkerPools,
)
from fumehood_server.telemetry.logging import CallLines, correlation

OnEnd = Callable[[CallOutcome], None]
OnUpdate = Callable[[CallUpdate], None]


class CallState(Enum):
    """Where a call stands. `ActiveCall` alone moves it, and only downwards."""

    ADMITTED = 1
    WAITING = 2
    """For its turn or for a worker."""
    RUNNING = 3
    ENDING = 4
    """Something ended it early, and its worker is being told."""
    ENDED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Machinery:
    """What the steps of every call share."""

    tools: Tools
    pools: WorkerPools
    validators: Validators
    gate: SequentialGate
    registry: Registry
    log: FilteringBoundLogger
    lines: CallLines
    loop: asyncio.AbstractEventLoop
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class ActiveCall:
    """One admitted call. It ends once: by its result, a deadline, a cancellation or an error of any step.

    A dispatched call that is ended early has its outcome when its worker has let go of it, which the worker bounds:
    the outcome so says by what means it ended, and nothing of it runs on.

    On the usual path no step waits: the call is dispatched before `begin` returns, and no task is made for it.

    Times are `time.monotonic`'s, which is the clock of event loops as well; a loop's own `time` may be as coarse as a
    millisecond.
    """

    __slots__ = (
        "_admitted_at",
        "_arguments",
        "_dispatched_at",
        "_handle",
        "_inside_gate",
        "_lease",
        "_machinery",
        "_on_end",
        "_on_update",
        "_state",
        "_task",
        "_timer",
        "_tool",
        "_verdict",
        "request",
    )

    def __init__(self, machinery: Machinery, request: CallRequest, on_end: OnEnd, on_update: OnUpdate | None) -> None:
        """Neither callback may raise. `on_end` can come before `begin` returns."""
        self.request = request
        self._machinery = machinery
        self._on_end = on_end
        self._on_update = on_update
        self._state = CallState.ADMITTED
        self._admitted_at = time.monotonic()
        self._dispatched_at = 0.0
        self._arguments = ""
        self._tool: RegisteredTool | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._lease: WorkerLease | None = None
        self._handle: InvocationHandle | None = None
        self._inside_gate = False
        self._verdict: CallError | None = None

    @property
    def state(self) -> CallState:
        """Where the call stands."""
        return self._state

    def begin(self) -> None:
        """Take the steps as far as they go without waiting. Call it once. Never raises."""
        try:
            error = self._prepare()
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave an admitted call without its outcome
            error = self._internal_error(exc)
        if error is not None:
            self._end(Checked(show(error), error=error))

    def cancel(self, reason: CancelReason, note: str = "") -> None:
        """End the call early, unless something has ended it already."""
        self._stop(cancelled(self.request.tool, reason, note), reason)

    def _prepare(self) -> CallError | None:
        """Every step before the worker. A step is one function; what a later version puts between them is named."""
        machinery, request = self._machinery, self.request
        tool = find_tool(machinery.tools, request.tool)
        if isinstance(tool, CallError):
            return tool
        self._tool = tool
        arguments = prepare_arguments(tool, request.arguments_json, machinery.validators)
        if isinstance(arguments, CallError):
            return arguments
        self._arguments = arguments
        denial = check_permission(tool)
        if denial is not None:
            return denial
        # Approval, hooks before the call and the intent in the journal come here, in this order.
        spec = tool.spec
        if spec is None:
            raise AssertionError("find_tool returns no tool without a spec")
        if tool.definition.execution_mode is ExecutionMode.SEQUENTIAL:
            self._inside_gate = machinery.gate.try_enter(tool.definition.name)
            lease = machinery.pools.try_acquire(spec) if self._inside_gate else None
        else:
            lease = machinery.pools.try_acquire(spec)
        if lease is None:
            return self._wait(tool, spec)
        return self._dispatch(tool, spec, lease)

    def _wait(self, tool: RegisteredTool, spec: WorkerSpec) -> CallError | None:
        self._state = CallState.WAITING
        deadline = self._deadline(Bound.WAIT, self._admitted_at, max(MIN_WAIT_S, tool.timeout_s))
        if deadline.at <= time.monotonic():
            return deadline.error(self.request.tool)
        self._arm(deadline)
        self._task = self._machinery.spawn(self._acquire(tool, spec))
        return None

    async def _acquire(self, tool: RegisteredTool, spec: WorkerSpec) -> None:
        """Wait for the tool's turn and for a worker, then dispatch. Whoever ends the call meanwhile cancels this."""
        machinery = self._machinery
        try:
            if tool.definition.execution_mode is ExecutionMode.SEQUENTIAL and not self._inside_gate:
                await machinery.gate.enter(tool.definition.name)
                self._inside_gate = True
            lease = machinery.pools.try_acquire(spec) or await machinery.pools.acquire(spec)
            if self._state is CallState.ENDED:
                self._lease = lease
                self._release()
                return
            error = self._dispatch(tool, spec, lease)
        except WorkerUnavailableError as exc:
            error = exc.error
        except asyncio.CancelledError:
            self.cancel(CancelReason.SHUTDOWN)
            self._release()
            raise
        except Exception as exc:  # noqa: BLE001 - as in `begin`
            error = self._internal_error(exc)
        if error is not None:
            self._task = None
            self._end(Checked(show(error), error=error))

    def _dispatch(self, tool: RegisteredTool, spec: WorkerSpec, lease: WorkerLease) -> CallError | None:
        self._lease = lease
        now = time.monotonic()
        deadline = self._deadline(Bound.TOOL, now, tool.timeout_s)
        if deadline.at <= now:
            return deadline.error(self.request.tool)
        self._state = CallState.RUNNING
        self._dispatched_at = now
        request = self.request
        invocation = Invocation(
            request.call_id,
            request.tool,
            self._arguments,
            request.context,
            1,
            deadline.at - now,
            self._update if self._on_update is not None else None,
        )
        self._handle = handle = lease.worker.invoke(invocation)
        self._arm(deadline)  # while the worker wakes
        handle.when_done(functools.partial(self._done, tool, spec))
        return None

    def _deadline(self, own: Bound, since: float, own_s: float) -> Deadline:
        """The first of the caller's bounds and one of our own, which began at `since`."""
        return first_deadline(
            admitted_at=self._admitted_at,
            timeout_s=self.request.timeout_s,
            caller_deadline=self.request.caller_deadline,
            own=own,
            own_at=since + own_s,
            own_s=own_s,
        )

    def _arm(self, deadline: Deadline) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._machinery.loop.call_at(deadline.at, self._expired, deadline)

    def _expired(self, deadline: Deadline) -> None:
        self._stop(deadline.error(self.request.tool), CancelReason.DEADLINE)

    def _stop(self, error: CallError, reason: CancelReason) -> None:
        """Decide that the call ends by `error`, at once where nothing was dispatched."""
        if self._state in (CallState.ENDING, CallState.ENDED):
            return
        if self._handle is None:
            self._end(Checked(show(error), error=error))
        elif not self._handle.done.done():  # else its result is here, and stands
            self._state = CallState.ENDING
            self._verdict = error
            self._handle.cancel(reason)

    def _update(self, update: CallUpdate) -> None:
        if self._state is CallState.RUNNING and self._on_update is not None:
            self._on_update(update)

    def _done(self, tool: RegisteredTool, spec: WorkerSpec, result: InvocationResult) -> None:
        """The worker has let go of the call."""
        try:
            if self._verdict is not None:
                error = stopped(tool, self._verdict, result)
                checked = Checked(show(error), error=error)
            else:
                checked = check_result(tool, spec, result, self._machinery.validators)
            # Hooks after the call and the outcome in the journal come here, in this order.
        except Exception as exc:  # noqa: BLE001 - as in `begin`
            error = self._internal_error(exc)
            checked = Checked(show(error), error=error)
        self._end(checked, output_bytes=result.output_bytes)

    def _end(self, checked: Checked, *, output_bytes: int = 0) -> None:
        """The one place where a call ends: give back what it held, answer, log."""
        if self._state is CallState.ENDED:
            return
        machinery, handle = self._machinery, self._handle
        now = time.monotonic()
        self._state = CallState.ENDED
        if self._task is not None and handle is None:
            self._task.cancel()
        worker = self._lease.worker if self._lease is not None and handle is not None else None
        usage = None
        if handle is not None:
            used, egress = handle.used(), handle.egress
            usage = Usage(
                wall_s=now - self._dispatched_at,
                queue_s=self._dispatched_at - self._admitted_at,
                input_bytes=len(self._arguments.encode()),
                output_bytes=output_bytes,
                cpu_s=None if used is None else used.cpu_s,
                peak_memory_bytes=0 if used is None else used.peak_memory_bytes,
                source="" if used is None else used.source,
                egress_sent_bytes=0 if egress is None else egress.sent_bytes,
                egress_received_bytes=0 if egress is None else egress.received_bytes,
            )
        outcome = CallOutcome(
            call_id=self.request.call_id,
            tool=self.request.tool,
            content=checked.content,
            details_json=checked.details_json,
            terminate=checked.terminate,
            error=checked.error,
            attempts=0 if handle is None else 1,
            usage=usage,
            receipt=worker.receipt if worker is not None else None,
        )
        self._release()
        machinery.registry.remove(self.request.call_id)
        try:
            self._on_end(outcome)
        except Exception as exc:  # noqa: BLE001 - a worker that serves others stands behind this call
            self._internal_error(exc)
        # The answer has been scheduled, and so goes first; the rest follows before the loop waits again.
        machinery.loop.call_soon(self._tidy, outcome, worker.worker_id if worker is not None else "", now)

    def _tidy(self, outcome: CallOutcome, worker_id: str, ended_at: float) -> None:
        """What the caller need not wait for: the timer, which does nothing after the end, and the line of the log."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._handle = None  # which knows whom to tell of updates: this one
        log_outcome(
            self._machinery.lines,
            self.request,
            outcome,
            plugin=self._tool.plugin if self._tool is not None else "",
            worker_id=worker_id,
            total_s=ended_at - self._admitted_at,
        )

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self._inside_gate:
            self._inside_gate = False
            self._machinery.gate.leave(self.request.tool)

    def _internal_error(self, exc: Exception) -> CallError:
        fields = correlation(self.request.context)
        self._machinery.log.error("a step of a call failed", exc_info=exc, call_id=self.request.call_id, **fields)
        return CallError(
            code=Code.TOOL_EXECUTION_FAILED,
            message=f"The sidecar failed while it ran {self.request.tool[:64]}; its log says more.",
            details={"reason": "internal_error"},
        )
