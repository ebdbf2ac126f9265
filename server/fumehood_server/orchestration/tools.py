"""The tools that one run may call, and their calls: through the sidecar's executor, by the rules of batches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fumehood_server.calls.call import Call
from fumehood_server.errors import RefusedError
from fumehood_server.model.batches import BatchConfig
from fumehood_server.model.call import CallApproval, CallError, CallOutcome, CallRequest, CallUpdate
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import ExecutionMode, safe_to_repeat
from fumehood_server.model.worker import CancelReason
from fumehood_server.orchestration.budget import Spending
from fumehood_server.orchestration.context import ToolBatch
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.happenings import (
    SHOWN_CHARS,
    ApprovalAwaited,
    HappeningLog,
    ToolFinished,
    ToolSaid,
    ToolStarted,
)
from fumehood_server.orchestration.made_calls import MadeCalls
from fumehood_server.orchestration.messages import Message, ToolUse
from fumehood_server.orchestration.recording import RunRecords
from fumehood_server.orchestration.request import SystemRequest
from fumehood_server.orchestration.shown_errors import cut_error
from fumehood_server.orchestration.tool_offers import ToolOffer
from fumehood_server.orchestration.tool_text import call_id_of, not_offered, result_text, tool_message

ENDING_S = 30.0
"""For calls of a run that is cancelled to have their outcomes: above the steps of ending a worker."""

_MAX_CAUSE_CHARS = 128


class Calls(Protocol):
    """Where calls are made: see `fumehood_server.calls.executor.Executor`."""

    @property
    def max_calls_of_one(self) -> int:
        """Most calls that one run should have under way."""

    def start(self, request: CallRequest) -> Call:
        """Admit a call. Raises RefusedError."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """What a run may call."""

    tools: Mapping[str, RegisteredTool]
    offers: Sequence[ToolOffer]
    """The same, as models are told of them."""

    def is_sequential(self, uses: Sequence[ToolUse]) -> bool:
        """Whether one of these has its calls run one after the other."""
        return any(
            found.definition.execution_mode is ExecutionMode.SEQUENTIAL
            for use in uses
            if (found := self.tools.get(use.tool)) is not None
        )


class ToolCalls:
    """Calls of one run. For one event loop."""

    def __init__(
        self,
        request: SystemRequest,
        tools: RunTools,
        calls: Calls,
        *,
        batch: Callable[[], BatchConfig],
        spending: Spending,
        records: RunRecords,
        log: HappeningLog,
        deadline: float,
    ) -> None:
        """`deadline` is the run's, on the clock of `time.monotonic`."""
        self.made = MadeCalls()
        self.under_way = 0
        """Calls that have no outcome yet."""
        self._request = request
        self._tools = tools
        self._calls = calls
        self._batch = batch
        self._spending = spending
        self._records = records
        self._log = log
        self._deadline = deadline

    async def call_all(self, inference: str, uses: Sequence[ToolUse]) -> ToolBatch:
        """See `RunContext.call_tools`. Cancelling this ends the calls, and returns once they have their outcomes."""
        allowed = sum(each.tool in self._tools.tools for each in uses)
        self._spending.take_tool_calls(allowed)
        most = 1 if self._tools.is_sequential(uses) else self._batch().concurrent(0)
        places = asyncio.Semaphore(max(1, min(most, self._calls.max_calls_of_one)))
        told: list[Message | None] = [None] * len(uses)
        terminate = [False] * len(uses)
        numbers = [
            self.made.add(
                call_id=call_id_of(self._request.request_id, inference, index) if use.tool in self._tools.tools else "",
                tool=use.tool,
                tool_use_id=use.id,
                arguments_json=use.arguments_json,
            )
            for index, use in enumerate(uses)
        ]

        def take(index: int, outcome: CallOutcome) -> None:  # of which nothing else is kept: it can be large
            told[index] = tool_message(uses[index], outcome)
            terminate[index] = outcome.terminate
            if outcome.error is not None:
                self.made.fail(numbers[index], outcome.error)

        async def finish(index: int, call: Call) -> None:
            try:
                take(index, await self._outcome(call))
            finally:
                places.release()

        async with asyncio.TaskGroup() as tasks:
            for index, use in enumerate(uses):  # calls begin in their order
                if use.tool not in self._tools.tools:
                    error = self._not_allowed(inference, index, use.tool)
                    take(index, CallOutcome(call_id="", tool=use.tool[:64], error=error))
                    continue
                await places.acquire()
                call = self._start(inference, index, use.tool, use.arguments_json, caused_by=use.id)
                if isinstance(call, CallOutcome):
                    take(index, call)
                    places.release()
                    continue
                following = tasks.create_task(finish(index, call))
                following.add_done_callback(functools.partial(_leave, call))
        messages = tuple(each for each in told if each is not None)
        if len(messages) != len(uses):
            raise AssertionError("each call has an outcome once its task has ended")
        return ToolBatch(messages=messages, terminate=bool(uses) and all(terminate))

    async def call_one(self, step: str, tool: str, arguments_json: str) -> CallOutcome:
        """See `RunContext.call_tool`."""
        if tool not in self._tools.tools:
            raise RunFailedError(self._not_allowed(step, 0, tool))
        self._spending.take_tool_calls(1)
        number = self.made.add(
            call_id=call_id_of(self._request.request_id, step, 0),
            tool=tool,
            tool_use_id=step,
            arguments_json=arguments_json,
        )
        call = self._start(step, 0, tool, arguments_json, step=step)
        outcome = call if isinstance(call, CallOutcome) else await self._outcome(call)
        if outcome.error is not None:
            self.made.fail(number, outcome.error)
        return outcome

    def _start(
        self, name: str, index: int, tool: str, arguments_json: str, *, step: str = "", caused_by: str = ""
    ) -> Call | CallOutcome:
        """The call, or that it was refused."""
        request, definition = self._request, self._tools.tools[tool].definition
        call_id = call_id_of(self._request.request_id, name, index)
        context = replace(
            request.context,
            request_id=request.request_id,
            session_id=request.session_id,
            turn_id=name,
            step_name=step,
            caused_by=caused_by[:_MAX_CAUSE_CHARS] or request.context.caused_by,
        )
        self._log.put(ToolStarted(call_id, tool, arguments_json[:SHOWN_CHARS], name))
        try:
            return self._calls.start(
                CallRequest(
                    call_id=call_id,
                    is_named=True,
                    tool=tool,
                    arguments_json=arguments_json,
                    context=context,
                    timeout_s=None,
                    caller_deadline=self._deadline,
                    again_after_crash=safe_to_repeat(definition.side_effects, idempotent=definition.idempotent),
                    caller=request.caller.recorded,
                    identity=request.caller,
                    trace=None if request.trace is None else request.trace.child(),
                )
            )
        except RefusedError as exc:
            outcome = _refused(call_id, tool, exc)
            self._log.put(ToolFinished(call_id, tool, result_text(outcome), outcome.error))
            return outcome

    async def _outcome(self, call: Call) -> CallOutcome:
        self.under_way += 1
        try:
            return await self._followed(call)
        finally:
            self.under_way -= 1

    async def _followed(self, call: Call) -> CallOutcome:
        request = call.request
        wake = asyncio.Event()
        updates = call.updates.read(wake.set)
        ended = asyncio.ensure_future(_ended(call))
        ended.add_done_callback(lambda _: wake.set())
        try:
            while not ended.done() or updates.ready:
                while updates.ready:
                    entry = updates.take()
                    if isinstance(entry, CallUpdate):
                        self._log.put(ToolSaid(request.call_id, entry))
                    elif isinstance(entry, CallApproval):
                        self._log.put(ApprovalAwaited(entry.approval_id, request.call_id, request.tool))
                if not ended.done():
                    wake.clear()
                    await wake.wait()
        except asyncio.CancelledError:
            call.cancel(CancelReason.CALLER, by=request.caller)
            await asyncio.wait((ended,), timeout=ENDING_S)
            raise
        finally:
            updates.close()
            ended.cancel()
        outcome = ended.result()
        text = result_text(outcome)[:SHOWN_CHARS] if self._log.is_read else ""
        error = None if outcome.error is None else cut_error(outcome.error)
        self._log.put(ToolFinished(request.call_id, request.tool, text, error))
        return outcome

    def _not_allowed(self, inference: str, index: int, tool: str) -> CallError:
        self._records.tool_refused(inference, index, tool, "not_offered")
        error = not_offered(tool)
        self._log.put(ToolFinished("", tool[:64], error.message, error))
        return error


def _leave(call: Call, following: asyncio.Task[None]) -> None:
    """Nobody waits for the call any more: a task can be cancelled before it has begun to."""
    if following.cancelled():
        call.abandon()


async def _ended(call: Call) -> CallOutcome:
    try:
        return await call.outcome()
    except RefusedError as exc:
        return _refused(call.request.call_id, call.request.tool, exc)


def _refused(call_id: str, tool: str, refused: RefusedError) -> CallOutcome:
    """Nothing ran: the sidecar has too many calls, or shuts down."""
    refusal = refused.refusal
    error = CallError(
        code=Code.TOOL_UNAVAILABLE,
        message=f"{tool} was not called: {refusal.message}",
        details={"reason": refusal.reason.value},
    )
    return CallOutcome(call_id=call_id, tool=tool, error=error)
