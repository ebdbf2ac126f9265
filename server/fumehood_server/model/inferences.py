"""What a call's tool asks a model, and the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fumehood_server.model.call import CallRequest
    from fumehood_server.model.events import About
    from fumehood_server.model.plugin import RegisteredTool

MAX_MESSAGES = 256
"""`InferenceRequest.messages` (plugin.proto)."""
MAX_TEXT_BYTES = 1024 * 1024
"""The same of their text together, with the system prompt."""
MAX_STOP_SEQUENCES = 16
"""`InferenceRequest.stop_sequences` (plugin.proto)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedInference:
    """What a tool asks. All of it may be hostile."""

    messages: tuple[tuple[str, str], ...]
    """Role ("user" or "assistant"; anything else is refused) and text of each."""
    system_prompt: str
    max_tokens: int
    temperature: float | None
    stop_sequences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInference:
    """What a model answers."""

    text: str
    model: str
    finish_reason: str


class Models(Protocol):
    """The engines, as calls may ask them."""

    async def infer(
        self,
        asked: AskedInference,
        number: int,
        *,
        call: CallRequest,
        tool: RegisteredTool,
        about: About | None,
        redact: Callable[[bytes], Awaitable[bytes]] | None,
    ) -> GivenInference:
        """The answer of the engine that the tool's plugin is granted, which is on record when this returns.

        `number` is that of the inference within the call, from 1. `redact` takes secrets out of what is recorded.

        Raises:
            PluginRequestError: there is none.
        """
