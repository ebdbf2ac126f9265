"""What a mode has of its run: the request, models, tools, and the states that it goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.orchestration.engines.engine import Engine, InferenceAnswer, InferenceRequest, OfferedTool
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.messages import Message, ToolUse
from fumehood_server.orchestration.request import SystemRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBatch:
    """The calls that one answer of a model asked for."""

    messages: tuple[Message, ...]
    """Of `TOOL`, one for each use, in their order."""
    terminate: bool
    """Whether every result asks for the run's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """What a mode came to."""

    content: str = ""
    output_json: str = ""
    confidence: float | None = None
    confidence_source: str = ""
    error: CallError | None = None
    """What is wrong with an output that is given all the same: its contract is not strict."""
    plan_trace_json: str = ""
    said: tuple[Message, ...] = ()
    """What the run adds to its session, after the request's own messages."""


class RunContext(Protocol):
    """One run, for its mode."""

    @property
    def request(self) -> SystemRequest:
        """What is to be done."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The session's history, as it is trimmed, and the request's messages."""

    @property
    def engine(self) -> Engine:
        """What `infer` asks. Not for asking it directly: nothing would be recorded."""

    @property
    def checks(self) -> DocumentChecks:
        """What checks outputs of models, off the event loop where that takes a while."""

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """What models may call in this run."""

    def keep_plan_trace(self, trace_json: str) -> None:
        """Keep what became of a plan, for the response of a run that ends without a `ModeResult`."""

    def enter(self, state: State, reason: str) -> None:
        """Go on to a state, which is recorded and told."""

    async def infer(self, name: str, request: InferenceRequest, *, follows: str = "") -> InferenceAnswer:
        """Ask the engine, again after what is transient, within the budget. Recorded, told, and served on resumption.

        `name` is [a-z0-9-]{1,40}, differs within the run, and is the same whenever the run is carried out again.
        `follows`, for the record, names the inference whose calls' results this one is told.

        Raises:
            RunFailedError: there is no answer (INFERENCE_*), or the budget is used up.
        """

    async def call_tools(self, inference: str, uses: Sequence[ToolUse]) -> ToolBatch:
        """Call what an answer asked for, by the rules of batches. A failure is a message for the model.

        Raises:
            RunFailedError: the budget is used up.
        """

    async def call_tool(self, step: str, tool: str, arguments_json: str) -> CallOutcome:
        """Call one tool for a step of a plan. `step` is as `name` of `infer`, and is the call's `step_name`.

        Raises:
            RunFailedError: it may not be called in this run, or the budget is used up.
        """

    def steering(self, name: str) -> tuple[Message, ...]:
        """Take what was said to the run since, for the inference of this name, which comes next."""

    def follow_ups(self, name: str) -> tuple[Message, ...]:
        """Take what was said to the run for its end, as `steering`. Empty: from now on it takes nothing more."""
