"""A run with fault knobs, for what modes decide: answers, outcomes, and when each of them comes are the test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.call import Block, CallError, CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import ModeResult, ToolBatch
from fumehood_server.orchestration.engines.engine import (
    FinishReason,
    InferenceAnswer,
    InferenceRequest,
    OfferedTool,
)
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.lifecycle import Lifecycle, State
from fumehood_server.orchestration.messages import Message, Role, ToolUse
from fumehood_server.orchestration.modes.plan import run_plan
from fumehood_server.orchestration.plans.contract_checks import ContractChecks
from fumehood_server.orchestration.request import Mode, OutputContract, PlanPolicy, SystemRequest
from fumehood_server.telemetry import get_logger

Answer = str | Exception | Callable[[], Awaitable[str]]
Outcome = Any
"""JSON, `Text`, `CallError`, an exception, or an awaitable of one of them."""


@dataclass(frozen=True)
class Text:
    """A result of text alone."""

    text: str


@dataclass
class FakeEngine:
    name: str = "scripted"
    attempts: int = 1
    constrains_schema: bool = False
    constrains_grammar: bool = False

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:
        raise AssertionError("a mode asks its run, not the engine", request, on_text)


@dataclass
class FakeRun:
    """Answers by the names of inferences, outcomes by tools. A name comes once: the record knows each by it."""

    request: SystemRequest
    answers: Mapping[str, Answer] = field(default_factory=dict)
    tools_by_name: Mapping[str, Callable[..., Outcome]] = field(default_factory=dict)
    engine_error: Exception | None = None
    constrains_schema: bool = False
    lifecycle: Lifecycle = field(default_factory=lambda: Lifecycle(Mode.PLAN))
    entered: list[State] = field(default_factory=list)
    inferences: dict[str, InferenceRequest] = field(default_factory=dict)
    calls: dict[str, tuple[str, Any]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    kept_trace: str = ""
    finish_reasons: Mapping[str, FinishReason] = field(default_factory=dict)
    under_way: int = 0
    checks: DocumentChecks = field(default_factory=lambda: DocumentChecks(get_logger()))
    expected: frozenset[str] = frozenset()
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether all of the expected were asked and called."""
    most_at_once: int = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.request.messages

    @property
    def engine(self) -> FakeEngine:
        if self.engine_error is not None:
            raise self.engine_error
        return FakeEngine(constrains_schema=self.constrains_schema)

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        return tuple(
            OfferedTool(name=name, description=f"Does {name}.", parameters={"type": "object"})
            for name in self.tools_by_name
        )

    @property
    def names(self) -> list[str]:
        """What was asked and called, in that order within each."""
        return [*self.inferences, *self.calls]

    def keep_plan_trace(self, trace_json: str) -> None:
        self.kept_trace = trace_json

    def enter(self, state: State, reason: str) -> None:
        assert reason
        self.lifecycle.enter(state, reason)
        self.entered.append(state)

    async def infer(self, name: str, request: InferenceRequest, *, follows: str = "") -> InferenceAnswer:  # noqa: ARG002
        self._use(name)
        self.inferences[name] = request
        text = await self._result(name, self.answers[name])
        reason = self.finish_reasons.get(name, FinishReason.STOP)
        return InferenceAnswer(message=Message(role=Role.ASSISTANT, text=text), finish_reason=reason)

    async def call_tool(self, step: str, tool: str, arguments_json: str) -> CallOutcome:
        self._use(step)
        arguments = json.loads(arguments_json)
        self.calls[step] = (tool, arguments)
        result = await self._result(step, self.tools_by_name[tool](arguments))
        if isinstance(result, CallError):
            return CallOutcome(call_id=step, tool=tool, error=result)
        if isinstance(result, Text):
            return CallOutcome(call_id=step, tool=tool, content=(Block(text=result.text),))
        return CallOutcome(call_id=step, tool=tool, details_json=json.dumps(result))

    async def call_tools(self, inference: str, uses: Sequence[ToolUse]) -> ToolBatch:
        raise AssertionError("a plan's steps call tools one by one", inference, uses)

    def steering(self, name: str) -> tuple[Message, ...]:
        raise AssertionError("a plan takes no messages", name)

    def follow_ups(self, name: str) -> tuple[Message, ...]:
        raise AssertionError("a plan takes no messages", name)

    def _use(self, name: str) -> None:
        assert name not in self.names, name
        assert 1 <= len(name) <= 40
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-"), name

    async def _result(self, name: str, result: Any) -> Any:
        self.under_way += 1
        if self.expected <= set(self.names):
            self.reached.set()
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            await asyncio.sleep(0)
            result = result() if callable(result) else result
            result = await result if isinstance(result, Awaitable) else result
            if isinstance(result, Exception):
                raise result
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self.under_way -= 1
        self.ended.append(name)
        return result


def request_for(
    steps: Iterable[Mapping[str, Any]] | None,
    *,
    output: Any = None,
    contract: OutputContract | None = None,
    policy: PlanPolicy | None = None,
) -> SystemRequest:
    """A request with a plan of these steps; without steps, one of which a model makes the plan."""
    plan = {"rationale": "since it is so", "steps": list(steps or ())} | ({} if output is None else {"output": output})
    return SystemRequest(
        request_id="run-1",
        is_named=True,
        messages=(Message(role=Role.USER, text="What is in the notes?"),),
        mode=Mode.PLAN,
        output=contract or OutputContract(),
        plan_json="" if steps is None else json.dumps(plan),
        plan_policy=policy or PlanPolicy(),
    )


def run_of(steps: Iterable[Mapping[str, Any]] | None, *, output: Any = None, **knobs: Any) -> FakeRun:
    """A run of a plan of these steps."""
    mine = {name: knobs.pop(name) for name in ("contract", "policy") if name in knobs}
    return FakeRun(request_for(steps, output=output, **mine), **knobs)


async def carry_out(run: FakeRun) -> ModeResult:
    """The mode's result. Outputs are held against contracts as in a sidecar."""
    async with DocumentChecks(get_logger()) as checks:
        run.checks = checks
        return await run_plan(run, ContractChecks(run))


async def failure_of(run: FakeRun) -> CallError:
    """What the run fails with."""
    try:
        await carry_out(run)
    except RunFailedError as exc:
        return exc.error
    raise AssertionError("it did not fail")


def tool_error(code: Code = Code.TOOL_EXECUTION_FAILED, **fields: Any) -> CallError:
    return CallError(code=code, message="the tool failed", **fields)


def states(trace_json: str) -> dict[str, str]:
    """The steps' states, by their names."""
    return {each["name"]: each["state"] for each in json.loads(trace_json)["steps"]}


def tool_step(name: str, tool: str = "echo", **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "tool", "tool": tool, **fields}


def infer_step(name: str, prompt: Any = "Say it.", **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "infer", "prompt": prompt, **fields}
