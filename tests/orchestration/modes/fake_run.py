"""A run with fault knobs, for the policy of modes: answers by the inference's name, and who is asked what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.call import CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import ToolBatch
from fumehood_server.orchestration.engines.engine import (
    FinishReason,
    InferenceAnswer,
    InferenceRequest,
    OfferedTool,
)
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import MODE_RULES, Lifecycle, State
from fumehood_server.orchestration.messages import Message, Role, ToolUse
from fumehood_server.orchestration.request import SystemRequest

ASKED = Message(role=Role.USER, text="What is it?")
DICE = OfferedTool(name="roll_dice", description="Rolls dice.", parameters={"type": "object"})

Scripted = str | InferenceAnswer | RunFailedError


def said(text: str, *, finish: FinishReason = FinishReason.STOP, uses: Sequence[ToolUse] = ()) -> InferenceAnswer:
    return InferenceAnswer(
        message=Message(role=Role.ASSISTANT, text=text, tool_uses=tuple(uses)), finish_reason=finish, model="fake"
    )


def calls(*tools: str) -> InferenceAnswer:
    uses = [ToolUse(id=f"use{number}", tool=tool, arguments_json="{}") for number, tool in enumerate(tools)]
    return said("", finish=FinishReason.TOOL, uses=uses)


def unavailable() -> RunFailedError:
    return failed(Code.INFERENCE_MODEL_UNAVAILABLE, "the model is away", retryable=True)


@dataclass
class FakeEngine:
    constrains_schema: bool = True
    constrains_grammar: bool = True
    name: str = "fake"

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:  # noqa: ARG002
        raise AssertionError("modes ask by their run, which records it")


@dataclass
class FakeRun:
    request: SystemRequest
    checks: DocumentChecks
    answers: Mapping[str, Scripted]
    """By the inference's name; one that is not there fails the test."""
    engine: FakeEngine = field(default_factory=FakeEngine)
    tools: tuple[OfferedTool, ...] = ()
    terminate: bool = False
    """Whether tools ask for the end."""
    gates: Mapping[str, asyncio.Event] = field(default_factory=dict)
    """What an inference waits for before it answers."""
    asked: dict[str, InferenceRequest] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    under_way: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each inference's begin and end."""

    def __post_init__(self) -> None:
        self.lifecycle = Lifecycle(self.request.mode)

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.request.messages

    def enter(self, state: State, reason: str) -> None:
        assert reason
        self.lifecycle.enter(state, reason)
        self.states.append(state)

    async def infer(self, name: str, request: InferenceRequest, *, follows: str = "") -> InferenceAnswer:  # noqa: ARG002
        assert name not in self.asked, f"two inferences are named {name}"
        self.asked[name] = request
        self.under_way.add(name)
        self.changed.set()
        try:
            if name in self.gates:
                await self.gates[name].wait()
            answer = self.answers[name]
        finally:
            self.under_way.discard(name)
            self.changed.set()
        if isinstance(answer, RunFailedError):
            raise answer
        return answer if isinstance(answer, InferenceAnswer) else said(answer)

    async def call_tools(self, inference: str, uses: Sequence[ToolUse]) -> ToolBatch:  # noqa: ARG002
        self.called += [use.tool for use in uses]
        messages = [Message(role=Role.TOOL, text="6", tool_use_id=use.id, tool=use.tool) for use in uses]
        return ToolBatch(messages=tuple(messages), terminate=self.terminate)

    async def call_tool(self, step: str, tool: str, arguments_json: str) -> CallOutcome:  # noqa: ARG002
        raise AssertionError("neither mode calls a tool by itself")

    def steering(self, *_: str) -> tuple[Message, ...]:
        return ()

    def follow_ups(self, *_: str) -> tuple[Message, ...]:
        raise AssertionError("neither mode takes messages for its end")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the begin or end of an inference brings about."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def told(self, name: str) -> str:
        """All that the model was told in one inference."""
        return "\n".join(message.text for message in self.asked[name].messages)

    def may_emit(self, code: Code) -> bool:
        """Whether the mode's table has the code, or it is of the configuration, which ends PREPARE of any mode."""
        return code.category in MODE_RULES[self.request.mode].emits or code.startswith("CONFIG_")
