"""Carries a recorded run out again, from its record alone: no engine is asked, and no tool is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.errors import JournalUnavailableError
from fumehood_server.journal.recorded import read_call
from fumehood_server.journal.store import StoreError
from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.orchestration.context import ModeResult, ToolBatch
from fumehood_server.orchestration.engines.engine import InferenceAnswer, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.input_hash import InputHasher
from fumehood_server.orchestration.lifecycle import Lifecycle, State
from fumehood_server.orchestration.messages import Message, ToolUse
from fumehood_server.orchestration.mode_table import MODES
from fumehood_server.orchestration.recorded import Reads, RecordedRun, find_run
from fumehood_server.orchestration.request_json import request_from_json
from fumehood_server.orchestration.tool_text import call_id_of, not_offered, tool_message


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """What came of a replay."""

    differs: str = ""
    """What first was not as it is on record. Empty: nothing."""
    not_run: str = ""
    """Why it was not carried out again. Empty: it was."""


_NOT_ON_RECORD = CallError(code=Code.ORCHESTRATION_STEP_MISMATCH, message="the replay differs from the record")


async def replay_run(reads: Reads, checks: DocumentChecks, request_id: str) -> ReplayedRun | None:
    """Carry a run out again and hold what comes of it against its record. None: no run of this id is recorded.

    Raises:
        JournalUnavailableError: the journal can't be read.
    """
    recorded = await find_run(reads, request_id)
    if recorded is None:
        return None
    why = _why_not(recorded)
    if why or recorded.request is None or recorded.response is None:
        return ReplayedRun(not_run=why)
    try:
        run = _Replay(request_id, recorded, reads, checks)
    except (KeyError, TypeError, ValueError) as exc:
        raise JournalUnavailableError(f"the record of the run can't be read: {type(exc).__name__}") from exc
    try:
        result = await MODES[run.request.mode](run)
        error = result.error
    except Exception as exc:  # noqa: BLE001 - sorted out below
        result, error = ModeResult(), _error_of(exc)
    return ReplayedRun(differs=run.differs or _difference(recorded, result, error))


def _why_not(recorded: RecordedRun) -> str:
    response = recorded.response
    if not recorded.ended:
        return "it has not ended"
    if response is None or recorded.request is None or recorded.is_cut:
        return "its request, its answers or its response are not kept"
    if response.error is not None and response.error.code.category is Category.CANCELLATION:
        return f"what ended it is not on record: {response.error.code.value}"
    if any(each.answer is None and each.error is None for each in recorded.answers.values()):
        return "its answers are not kept"
    return ""


def _error_of(error: Exception) -> CallError:
    """The failure that the run would have ended with; raises what is a fault of ours."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, RunFailedError):
        return error.error
    if isinstance(error, JournalUnavailableError):
        raise error
    raise error


def _difference(recorded: RecordedRun, result: ModeResult, error: CallError | None) -> str:
    response = recorded.response
    if response is None:
        raise AssertionError("it was asked for before")
    was, now = (None if each is None else each.code.value for each in (response.error, error))
    if was != now:
        return f"it ended with {was or 'no error'}, and now ends with {now or 'no error'}"
    for name, old, new in (
        ("text", response.content, result.content),
        ("output", response.output_json, result.output_json),
    ):
        if old != new and error is None:
            return f"its {name} was another: {old[:200]!r}, and now {new[:200]!r}"
    return ""


class _Replay:
    """A `RunContext` over a record."""

    def __init__(self, request_id: str, recorded: RecordedRun, reads: Reads, checks: DocumentChecks) -> None:
        response = recorded.response
        session_id = "" if response is None else response.session_id
        self.request = request_from_json(recorded.request or {}, request_id, session_id)
        self.messages = (*recorded.history, *self.request.messages)
        self.tools = recorded.tools
        self.checks = checks
        self.engine = _RecordedEngine(
            constrains_schema=recorded.constrains["schema"], constrains_grammar=recorded.constrains["grammar"]
        )
        self.differs = ""
        self._lifecycle = Lifecycle(self.request.mode)
        self._recorded = recorded
        self._reads = reads
        self._told: set[int] = set()
        self._hasher = InputHasher()

    def enter(self, state: State, reason: str) -> None:
        """See `RunContext`."""
        self._lifecycle.enter(state, reason)

    def keep_plan_trace(self, trace_json: str) -> None:
        """See `RunContext`. Its times are not those of the record."""

    async def infer(self, name: str, request: InferenceRequest, *, follows: str = "") -> InferenceAnswer:  # noqa: ARG002 - see RunContext
        """See `RunContext`."""
        found = self._recorded.answers.get(name)
        if found is None:
            response = self._recorded.response
            if response is not None and response.error is not None:  # such as of a budget: it was not asked any more
                raise RunFailedError(response.error)
            raise self._diverged(f"a model is asked that was not asked then: {name}")
        if found.input_hash != await self._hasher.hash_of(request):
            raise self._diverged(f"{name} is asked something else than it was")
        if found.error is not None:
            raise RunFailedError(found.error)
        if found.answer is None:
            raise AssertionError("runs whose answers are not kept are not replayed")
        return found.answer

    async def call_tools(self, inference: str, uses: Sequence[ToolUse]) -> ToolBatch:
        """See `RunContext`."""
        outcomes = [await self._outcome(inference, index, use.tool) for index, use in enumerate(uses)]
        return ToolBatch(
            messages=tuple(map(tool_message, uses, outcomes)),
            terminate=bool(outcomes) and all(each.terminate for each in outcomes),
        )

    async def call_tool(self, step: str, tool: str, arguments_json: str) -> CallOutcome:  # noqa: ARG002 - see RunContext
        """See `RunContext`."""
        outcome = await self._outcome(step, 0, tool)
        if not outcome.call_id and outcome.error is not None:
            raise RunFailedError(outcome.error)
        return outcome

    def steering(self, name: str) -> tuple[Message, ...]:
        """See `RunContext`."""
        return self._take(name)

    def follow_ups(self, name: str) -> tuple[Message, ...]:
        """See `RunContext`."""
        return self._take(name)

    def _take(self, name: str) -> tuple[Message, ...]:
        given = sorted(self._recorded.steering.values(), key=lambda each: (each.kind == "follow_up", each.number))
        taken = [each for each in given if each.taken_by == name and each.number not in self._told]
        self._told |= {each.number for each in taken}
        return tuple(message for each in taken for message in each.messages)

    async def _outcome(self, name: str, index: int, tool: str) -> CallOutcome:
        if (name, index) in self._recorded.refused:
            return CallOutcome(call_id="", tool=tool[:64], error=not_offered(tool))
        call_id = call_id_of(self.request.request_id, name, index)
        try:
            found = await self._reads.run(lambda reader: read_call(reader, call_id))
        except StoreError as exc:
            raise JournalUnavailableError(str(exc)) from exc
        if found is None or found.outcome is None:
            response = self._recorded.response
            if response is not None and response.error is not None:
                raise RunFailedError(response.error)
            raise self._diverged(f"{tool[:64]} is called, and no outcome of that is on record ({call_id})")
        if found.tool != tool:
            raise self._diverged(f"{tool[:64]} is called in the place of {found.tool} ({call_id})")
        return found.outcome

    def _diverged(self, what: str) -> RunFailedError:
        self.differs = self.differs or what
        return RunFailedError(_NOT_ON_RECORD)


@dataclass(frozen=True, slots=True)
class _RecordedEngine:
    """What is known of the engine that was asked. It is asked nothing more."""

    constrains_schema: bool
    constrains_grammar: bool
    name: str = "(recorded)"
    attempts: int = 1

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:  # noqa: ARG002
        """See `Engine`."""
        raise AssertionError("a replay asks no engine")
