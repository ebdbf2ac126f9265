"""What a caller hands over to be run: DESIGN's `SystemRequest`, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fumehood_server.model.call import CallContext
from fumehood_server.model.caller import ANONYMOUS, Caller
from fumehood_server.model.trace import TraceContext
from fumehood_server.orchestration.messages import Message


class Mode(StrEnum):
    """How a request is carried out."""

    CHAT = "chat"
    STRUCTURED = "structured"
    PLAN = "plan"
    REDUNDANT = "redundant"

    @property
    def takes_messages(self) -> bool:
        """Whether a run may be given further messages while it is under way."""
        return self is Mode.CHAT


class Consensus(StrEnum):
    """What decides among replicas."""

    MAJORITY = "majority"
    """More than half of those that were asked."""
    UNANIMOUS = "unanimous"
    """All, and none was lost."""
    PLURALITY = "plurality"
    """The most votes; among equals the replica of the lowest number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """How the model is asked. None leaves it to the engine's configuration."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    vendor_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule over the output. An empty part allows anything."""

    name: str
    pointer: str = ""
    """JSON pointer (RFC 6901) of the value that it speaks of."""
    one_of: tuple[Any, ...] = ()
    pattern: str = ""
    """In the linear engine's syntax: without look-around and back-references."""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContract:
    """What the output has to be. Without a schema and a grammar: text."""

    schema: Mapping[str, Any] | None = None
    """JSON Schema 2020-12."""
    grammar: str = ""
    """In llama.cpp's GBNF."""
    repair_allowed: bool = False
    strict: bool = False
    rules: tuple[Rule, ...] = ()
    semantic_check: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether any text will do."""
        return self.schema is None and not self.grammar and not self.rules and not self.semantic_check


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may use. None: no bound."""

    max_tokens: int | None = None
    max_cost: float | None = None
    max_tool_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPolicy:
    """Bounds on a plan."""

    max_steps: int = 32
    allowed_step_kinds: frozenset[str] = frozenset({"infer", "tool", "validate", "map"})
    require_linear: bool = False
    step_timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRequest:
    """One request to a model and the tools around it."""

    request_id: str
    is_named: bool
    """Whether the caller chose the id, so that it may be a repetition."""
    session_id: str = ""
    context: CallContext = field(default_factory=CallContext)
    trace: TraceContext | None = None
    """Of the run: its inferences and calls are within it. None: it is not traced."""
    messages: tuple[Message, ...]
    mode: Mode = Mode.CHAT
    hints: Hints = field(default_factory=Hints)
    output: OutputContract = field(default_factory=OutputContract)
    allowed_tools: frozenset[str] | None = None
    """None: all that the caller may call."""
    engine: str = ""
    """Name. Empty: the operator's default."""
    budget: Budget = field(default_factory=Budget)
    timeout_s: float | None = None
    max_iterations: int = 20
    """Inferences of the phase in which tools are called."""
    max_retries: int = 2
    """Of mode structured: how often the model is asked again for output that is not as it should be."""
    replicas: int = 3
    consensus: Consensus = Consensus.MAJORITY
    vote_pointer: str = ""
    plan_json: str = ""
    plan_policy: PlanPolicy = field(default_factory=PlanPolicy)
    continues: bool = False
    """Whether it goes on when its caller goes away."""
    caller: Caller = ANONYMOUS
    caller_deadline: float | None = None
    """On the clock of `time.monotonic`. None: none."""

    @property
    def turn_path(self) -> tuple[str, ...]:
        """By what it takes turns with others where one document is checked after the other (`Caller.turn_path`)."""
        return *self.caller.turn_path, self.request_id
