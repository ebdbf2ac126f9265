"""Interface of an engine: messages and tools in, a model's message out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fumehood_server.errors import FumehoodError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.messages import Message
from fumehood_server.orchestration.request import Hints
from fumehood_server.orchestration.response import TokenUsage

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of one answer, on the wire: above it the engine's answer is malformed."""
MAX_TOOL_USES = 128
"""Of one answer."""
CHARS_A_TOKEN = 4
"""Where an engine reports no usage, so that budgets hold of it too: about what English text comes to."""


class FinishReason(StrEnum):
    """Why a model stopped."""

    STOP = "stop"
    TOOL = "tool"
    LENGTH = "length"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """What a model is asked."""

    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    hints: Hints = field(default_factory=Hints)
    schema: Mapping[str, Any] | None = None
    """What the answer has to fit, where the engine can constrain its decoding. None: text."""
    grammar: str = ""
    """GBNF, in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceAnswer:
    """What a model answered."""

    message: Message
    """Of `ASSISTANT`. Ids of its tool uses are there and differ."""
    finish_reason: FinishReason
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str = ""
    """As the engine names what answered."""


class EngineError(FumehoodError):
    """An engine did not answer as it should."""

    def __init__(
        self, code: Code, message: str, *, transient: bool = False, retry_after_s: float | None = None
    ) -> None:
        """`code` is one of INFERENCE_*. `message` holds no key, and little of what the engine said.

        `transient`: the same request may succeed later, and not before `retry_after_s` where that is known.
        """
        super().__init__(message)
        self.code = code
        self.transient = transient
        self.retry_after_s = retry_after_s


class Engine(Protocol):
    """Answers for a model. Used by many runs at once, on one event loop."""

    @property
    def name(self) -> str:
        """As the operator named it."""

    @property
    def attempts(self) -> int:
        """Most tries of one inference, the first included, by the operator's word."""

    @property
    def constrains_schema(self) -> bool:
        """Whether its decoding keeps to a schema."""

    @property
    def constrains_grammar(self) -> bool:
        """Whether its decoding keeps to a grammar."""

    async def infer(self, request: InferenceRequest, on_text: Callable[[str], None]) -> InferenceAnswer:
        """One answer, after one try. `on_text` is handed pieces of its text as they come.

        It ends within the operator's timeout of the engine. Cancelling it closes the request to the engine.

        Raises:
            EngineError: there is none.
        """
