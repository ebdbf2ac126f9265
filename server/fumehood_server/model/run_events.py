"""What the journal records of runs of models: see `fumehood_server.orchestration`. Their subject is the run's id.

They are recorded in the order in which things happen, so that an answer of a model is on disk before the intent of any
call that it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fumehood_server.model.events import Digested, Event


@dataclass(slots=True, kw_only=True)
class RunStarted(Event):
    """A run is admitted."""

    TYPE: ClassVar[str] = "run_started"
    mode: str
    engine: str
    """Name. Empty: there is none of that name."""
    request_hash: str
    """SHA-256 of the request as canonical JSON (RFC 8785), by which a repetition is known."""
    request: Digested | None
    """With it the session's history, as the run was given it, and what the engine constrains: all that decides what is
    asked, beside what is answered."""
    tools: str
    """SHA-256 of what the model is offered, which is a document. Empty: nothing is."""
    caller: str
    """As in `execute_start`."""
    authenticated_by: str
    configuration: str
    """SHA-256 of the configuration in force, which is a document."""


@dataclass(slots=True, kw_only=True)
class RunResumed(Event):
    """A run that a crash has interrupted goes on."""

    TYPE: ClassVar[str] = "run_resumed"
    inferences: int
    """How many answers are served from the record."""
    from_sidecar: str = ""
    """Who has carried it out before: the newest that has recorded its start, or that it goes on."""


@dataclass(slots=True, kw_only=True)
class LifecycleTransition(Event):
    """A run went from one state to the next."""

    TYPE: ClassVar[str] = "lifecycle_transition"
    from_state: str
    to_state: str
    attempt: int
    reason: str


@dataclass(slots=True, kw_only=True)
class InferenceStart(Event):
    """An engine is asked."""

    TYPE: ClassVar[str] = "inference_start"
    name: str
    """Within the run."""
    attempt: int
    engine: str
    input_hash: str
    """SHA-256 of messages, schema and grammar as canonical JSON. What they are follows from the run's other events."""
    message_count: int
    tool_defs_count: int
    schema_present: bool
    grammar_present: bool
    temperature: float | None
    follows: str = ""
    """Name of the inference whose calls' results it is told for the first time: those calls have that name as their
    context's `turn_id`. Empty: it is told none."""


@dataclass(slots=True, kw_only=True)
class InferenceEnd(Event):
    """An engine has answered, or failed."""

    TYPE: ClassVar[str] = "inference_end"
    name: str
    attempt: int
    input_hash: str
    duration_us: int
    tokens_in: int
    tokens_out: int
    cost: float
    finish_reason: str
    """`stop`, `tool`, `length`, `filtered` or `error`."""
    tool_call_count: int
    error_code: str
    """Empty: it answered."""
    is_last: bool
    """Whether it is not tried again."""
    model: str
    """As the engine names what answered."""
    answer: Digested | None
    """The message, or the error, as JSON."""


@dataclass(slots=True, kw_only=True)
class CallInferenceStart(InferenceStart):
    """An engine is asked for a call's tool, by the operator's grant."""

    TYPE: ClassVar[str] = "call_inference_start"
    request: Digested | None
    """JSON with `messages`, `system_prompt` and `max_tokens`. None: it is not recorded."""


@dataclass(slots=True, kw_only=True)
class CallInferenceEnd(InferenceEnd):
    """An engine has answered a call's tool, or failed."""

    TYPE: ClassVar[str] = "call_inference_end"


@dataclass(slots=True, kw_only=True)
class RunToolRefused(Event):
    """A model asked for a tool that it may not call in this run. Nothing was called."""

    TYPE: ClassVar[str] = "run_tool_refused"
    inference: str
    index: int
    """Of the use within the answer."""
    tool: str
    """As the model named it, cut."""
    reason: str


@dataclass(slots=True, kw_only=True)
class RunSteered(Event):
    """A run was given further messages."""

    TYPE: ClassVar[str] = "run_steered"
    number: int
    """From 1."""
    kind: str
    """`steer` or `follow_up`."""
    messages: Digested | None
    caller: str
    authenticated_by: str


@dataclass(slots=True, kw_only=True)
class RunSteeringTaken(Event):
    """They were put before what an inference is asked."""

    TYPE: ClassVar[str] = "run_steering_taken"
    name: str
    """Of the inference."""
    numbers: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class RunEnded(Event):
    """A run ended. Once for each that was admitted."""

    TYPE: ClassVar[str] = "run_ended"
    state: str
    """`COMPLETE`, `FAILED` or `CANCELLED`."""
    error_code: str
    """Empty: it did not fail."""
    inferences: int
    tool_calls: int
    tokens_in: int
    tokens_out: int
    cost: float
    wall_us: int
    response: Digested | None
    """What its caller got, as JSON."""


@dataclass(slots=True, kw_only=True)
class SessionTurn(Event):
    """A run that ended has added to a conversation. Its subject is the session's id, which stands for the run's."""

    TYPE: ClassVar[str] = "session_turn"
    run: str
    """The run's id."""
    caller: str
    messages: Digested | None
    """What was said in it, as JSON."""
