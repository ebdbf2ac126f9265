"""How a run ended: DESIGN's `SystemResponse`."""

from __future__ import annotations

from dataclasses import dataclass, field

from fumehood_server.model.call import CallError


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """What inferences used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cost: float = 0.0
    """By the operator's prices."""
    inferences: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Both."""
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cost=self.cost + other.cost,
            inferences=self.inferences + other.inferences,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallMade:
    """A call of a tool that was made."""

    call_id: str
    """Empty: it was refused before it was a call."""
    tool: str
    tool_use_id: str
    arguments_json: str
    error: CallError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResponse:
    """How a run ended."""

    request_id: str
    session_id: str
    content: str = ""
    output_json: str = ""
    tool_calls_made: tuple[ToolCallMade, ...] = ()
    confidence: float | None = None
    confidence_source: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)
    error: CallError | None = None
    plan_trace_json: str = ""
    state: str
