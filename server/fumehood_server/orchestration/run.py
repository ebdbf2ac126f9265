"""One run, from its admission to its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.errors import JournalUnavailableError, Refusal, RefusalReason, RefusedError
from fumehood_server.model.batches import BatchConfig
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.caller import Caller
from fumehood_server.model.journal import Journal
from fumehood_server.model.quotas import Quotas
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Payloads
from fumehood_server.orchestration.budget import Spending
from fumehood_server.orchestration.context import ModeResult, RunContext, ToolBatch
from fumehood_server.orchestration.engines.engine import Engine, InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError, SuspendedError, failed
from fumehood_server.orchestration.happenings import HappeningLog, InferenceFinished
from fumehood_server.orchestration.inferences import Asked, Inferences, Origin
from fumehood_server.orchestration.input_hash import InputHasher
from fumehood_server.orchestration.lifecycle import Lifecycle, State
from fumehood_server.orchestration.messages import Message, ToolUse, messages_to_json
from fumehood_server.orchestration.recorded import RecordedRun, Steering
from fumehood_server.orchestration.recording import RunRecords
from fumehood_server.orchestration.request import Budget, SystemRequest
from fumehood_server.orchestration.response import SystemResponse, TokenUsage
from fumehood_server.orchestration.result_bounds import within_bounds
from fumehood_server.orchestration.shown_errors import cut_own_error
from fumehood_server.orchestration.tools import Calls, RunTools, ToolCalls
from fumehood_server.telemetry import RunObserver, get_logger

MAX_STEERED = 256
"""Times that a run may be given further messages."""
MAX_STEERED_CHARS = 4 * 1024 * 1024
"""Of them together."""
MAX_ASKED_CHARS = 8 * 1024 * 1024
"""Of one inference's messages: above what any model takes, and what is hashed and sent is as long."""
MAX_TOLD_CHARS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """What a run is carried out with."""

    engine: Engine
    tools: RunTools
    calls: Calls
    checks: DocumentChecks
    batch: Callable[[], BatchConfig]
    journal: Journal
    payloads: Payloads
    budget: Budget
    quotas: Quotas
    observer: RunObserver | None
    timeout_s: float
    """The operator's cap."""
    history: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class RunBegin:
    """What is recorded of its start."""

    request: Mapping[str, Any]
    """As `request_to_json` has it."""
    request_hash: str
    engine: str
    """Name. Empty: there is none."""
    configuration: str
    admitted_at: float
    """On the clock of `time.monotonic`: what the run waited for its session is its own time."""


def deadline_of(request: SystemRequest, admitted_at: float, timeout_s: float) -> float:
    """When a run ends at the latest, on the clock of `time.monotonic`. `timeout_s` is the operator's cap."""
    bounds = [admitted_at + timeout_s]
    if request.timeout_s is not None:
        bounds.append(admitted_at + request.timeout_s)
    if request.caller_deadline is not None:
        bounds.append(request.caller_deadline)
    return min(bounds)


class Run:
    """Carries one request out. Its mode sees it as a `RunContext`; whoever started it, by `response` and `cancel`."""

    def __init__(
        self,
        request: SystemRequest,
        parts: RunParts,
        begin: RunBegin,
        log: HappeningLog,
        recorded: RecordedRun | None,
    ) -> None:
        """`recorded`: what there is of it already, which is not done again."""
        self.request = request
        self.engine = parts.engine
        self.tools = tuple(each.tool for each in parts.tools.offers)
        self.messages = (*parts.history, *request.messages)
        self.checks = parts.checks
        self.lifecycle = Lifecycle(request.mode)
        self._parts = parts
        self._begin = begin
        self._log = log
        self._recorded = recorded
        self._records = RunRecords(parts.journal, request, parts.payloads)
        self._spending = Spending(parts.budget)
        self._began_at = begin.admitted_at
        self.deadline = deadline_of(request, begin.admitted_at, parts.timeout_s)
        """On the clock of `time.monotonic`."""
        self._calls = ToolCalls(
            request,
            parts.tools,
            parts.calls,
            batch=parts.batch,
            spending=self._spending,
            records=self._records,
            log=log,
            deadline=self.deadline,
        )
        self._inferences = Inferences(
            Origin(request.caller.name, request.session_id, request.trace),
            parts.engine,
            quotas=parts.quotas,
            records=self._records.inferences,
            tell=log.put,
            observer=parts.observer,
            deadline=self.deadline,
        )
        self._steering: dict[int, Steering] = {} if recorded is None else dict(recorded.steering)
        self._told: set[int] = set()
        """Numbers of the messages from outside that models were told."""
        self._names: set[str] = set()
        self._hasher = InputHasher()
        self._takes_messages = request.mode.takes_messages
        self.is_suspended = False
        """Whether it begins nothing more, and is left without an end."""
        self.is_ending = False
        """Whether its end is being recorded."""
        self._plan_trace_json = ""

    # For its mode: see RunContext.

    def enter(self, state: State, reason: str) -> None:
        """See `RunContext`."""
        transition = self.lifecycle.enter(state, reason[:MAX_TOLD_CHARS])
        self._records.transition(transition)
        self._log.put(transition)

    def keep_plan_trace(self, trace_json: str) -> None:
        """See `RunContext`."""
        self._plan_trace_json = trace_json

    async def infer(self, name: str, request: InferenceRequest, *, follows: str = "") -> InferenceAnswer:
        """See `RunContext`."""
        self._check_goes_on()
        if name in self._names:
            raise AssertionError(f"two inferences of a run are named {name}")
        self._names.add(name)
        if sum(each.size for each in request.messages) > MAX_ASKED_CHARS:
            text = f"the messages are more than {MAX_ASKED_CHARS} characters: answers and results of tools add up"
            raise failed(Code.INFERENCE_CONTEXT_EXCEEDED, text)
        asked_hash = await self._hasher.hash_of(request)
        self._check_goes_on()  # that may have taken a moment
        answer = self._from_record(name, asked_hash)
        if answer is None:
            self._spending.check_inference()
            answer = await self._inferences.ask(Asked(name, request, asked_hash, follows))
        self._spending.usage += replace(answer.usage, inferences=1)
        return answer

    async def call_tools(self, inference: str, uses: Sequence[ToolUse]) -> ToolBatch:
        """See `RunContext`."""
        self._check_goes_on()
        return await self._calls.call_all(inference, uses)

    async def call_tool(self, step: str, tool: str, arguments_json: str) -> CallOutcome:
        """See `RunContext`."""
        self._check_goes_on()
        return await self._calls.call_one(step, tool, arguments_json)

    def steering(self, name: str) -> tuple[Message, ...]:
        """See `RunContext`."""
        return self._take(name, "steer")

    def follow_ups(self, name: str) -> tuple[Message, ...]:
        """See `RunContext`."""
        found = self._take(name, "steer") + self._take(name, "follow_up")
        if not found:
            self._takes_messages = False
        return found

    # For whoever started it.

    async def steer(self, messages: tuple[Message, ...], kind: str, by: Caller) -> None:
        """Give it further messages, on record once this returns.

        Raises:
            RefusedError: it takes none.
            JournalUnavailableError: they can't be recorded.
        """
        said = sum(
            each.size for given in (messages, *(one.messages for one in self._steering.values())) for each in given
        )
        if not self._takes_messages or len(self._steering) >= MAX_STEERED or said > MAX_STEERED_CHARS:
            text = "the run takes no messages: it is about to end, is not in mode chat, or was given too many"
            raise RefusedError(Refusal(RefusalReason.RUN_NOT_STEERABLE, text))
        number = max(self._steering, default=0) + 1  # one that could not be recorded leaves a gap
        self._steering[number] = given = Steering(number, kind, (), taken_by="(not recorded yet)")
        if self._parts.journal.recording:
            await self._records.steered(number, kind, messages, by)
        given.messages, given.taken_by = messages, ""
        if not self._takes_messages:
            raise RefusedError(Refusal(RefusalReason.RUN_NOT_STEERABLE, "the run has ended meanwhile"))

    def suspend(self) -> bool:
        """Begin nothing more, since the sidecar shuts down. Whether the run may be cancelled at once.

        A call under way ends first: its outcome is then on record. A run that can't be asked for again goes on.
        """
        self.is_suspended = self.request.is_named and self._parts.journal.recording
        return self.is_suspended and not self._calls.under_way

    async def carry_out(
        self, mode: Callable[[RunContext], Awaitable[ModeResult]], why_ended: Callable[[], str]
    ) -> SystemResponse:
        """Run the mode under the deadline, and record how that ended. Cancelling this is an end as any other.

        `why_ended` says who asked for the end, once this is cancelled.

        Raises:
            SuspendedError: it was suspended, and has no end.
            JournalUnavailableError: start or end can't be recorded. Sent again, the request goes on from what is.
            CallTakenError: another sidecar of the journal carries it out.
        """
        result, error, state = ModeResult(), None, State.COMPLETE
        try:
            await self._record_start()
            async with asyncio.timeout(max(self.deadline - time.monotonic(), 0.0)):
                result = within_bounds(await mode(self))
            error = result.error
        except (JournalUnavailableError, SuspendedError):
            raise
        except TimeoutError:
            error, state = self._out_of_time(), State.CANCELLED
        except asyncio.CancelledError:
            if self.is_suspended:
                raise SuspendedError from None
            _uncancel()
            error, state = _ended_early(why_ended()), State.CANCELLED
        except RunFailedError as exc:
            error, state = exc.error, State.FAILED
        except Exception as exc:
            if self.is_suspended:
                raise SuspendedError from exc
            error, state = _fault(exc, self.request.request_id), State.FAILED
        self._takes_messages, self.is_ending = False, True
        self.enter(state, "" if error is None else error.code.value)
        response = SystemResponse(
            request_id=self.request.request_id,
            session_id=self.request.session_id,
            content=result.content,
            output_json=result.output_json,
            tool_calls_made=self._calls.made.listed,
            confidence=result.confidence,
            confidence_source=result.confidence_source,
            usage=self._spending.usage,
            error=None if error is None else cut_own_error(error),
            plan_trace_json=result.plan_trace_json or self._plan_trace_json,
            state=state.value,
        )
        if self._parts.journal.recording:
            said = (*self.request.messages, *result.said) if state is State.COMPLETE else ()
            await self._records.ended(response, said, time.monotonic() - self._began_at, calls=self._calls.made.count)
        if self._parts.observer is not None:
            self._parts.observer.run_ended(
                self.request.request_id,
                mode=self.request.mode.value,
                code="OK" if error is None else error.code.value,
                took_s=time.monotonic() - self._began_at,
                trace=self.request.trace,
                session_id=self.request.session_id,
            )
        return response

    # Behind them.

    def _check_goes_on(self) -> None:
        if self.is_suspended:
            raise SuspendedError("the sidecar shuts down")

    async def _record_start(self) -> None:
        if not self._parts.journal.recording:
            return
        if self._recorded is not None:
            await self._records.resumed(len(self._recorded.answers), self._recorded.sidecar)
            return
        begin, engine = self._begin, self.engine
        start = {
            "request": begin.request,
            "history": messages_to_json(self._parts.history),
            "constrains": {"schema": engine.constrains_schema, "grammar": engine.constrains_grammar},
        }
        data = await asyncio.to_thread(orjson.dumps, start)
        await self._records.started(
            data, begin.request_hash, begin.engine, begin.configuration, self._parts.tools.offers
        )

    def _take(self, name: str, kind: str) -> tuple[Message, ...]:
        waiting = [each for each in self._steering.values() if each.kind == kind and each.number not in self._told]
        taken = [each for each in waiting if each.taken_by == name]
        if self._recorded is None or name not in self._recorded.answers:  # else it was answered without the others
            new = [each for each in waiting if not each.taken_by]
            for each in new:
                each.taken_by = name
            if new:
                self._records.steering_taken(name, [each.number for each in new])
            taken += new
        self._told |= {each.number for each in taken}
        return tuple(message for each in taken for message in each.messages)

    def _from_record(self, name: str, asked_hash: str) -> InferenceAnswer | None:
        """What was answered before a crash. Raises what it failed with, or that the record is of something else."""
        found = None if self._recorded is None else self._recorded.answers.get(name)
        if found is None:
            return None
        if found.input_hash != asked_hash:
            raise failed(
                Code.ORCHESTRATION_STEP_MISMATCH,
                f"the run can't go on: what {name} would be asked is not what it was asked before the interruption",
                details={"inference": name, "reason": "record_differs"},
            )
        if found.error is not None:
            self._log.put(InferenceFinished(name, "error", TokenUsage(), found.error, recorded=True))
            raise RunFailedError(found.error)
        if found.answer is None:
            raise failed(
                Code.ORCHESTRATION_STEP_MISMATCH,
                f"the run can't go on: the answer of {name} is not kept in the journal",
                details={"inference": name, "reason": "answer_not_kept"},
            )
        answer = found.answer
        self._log.put(InferenceFinished(name, answer.finish_reason.value, answer.usage, recorded=True))
        return answer

    def _out_of_time(self) -> CallError:
        text = "The run took longer than it may: by the request's timeout, the caller's deadline or the operator's cap."
        took_s = round(time.monotonic() - self._began_at, 3)
        return CallError(code=Code.CANCELLED_TIMEOUT, message=text, retryable=True, details={"after_s": took_s})


def _ended_early(why: str) -> CallError:
    return CallError(code=Code.CANCELLED_SIGNAL, message=f"The run was ended: {why}.", retryable=False)


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _fault(error: Exception, request_id: str) -> CallError:
    """What is told of an error that is no run's own: the failure in a group of tasks, or a fault of the sidecar."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RunFailedError):
        return error.error
    get_logger().error("run_fault", request_id=request_id, exc_info=error)
    text = "The sidecar failed in a way that is its own fault: its log has more."
    return CallError(code=Code.TOOL_UNAVAILABLE, message=text, details={"reason": "internal"})
