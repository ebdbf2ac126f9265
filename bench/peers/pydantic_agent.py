"""pydantic-ai's agent with the scripted engine and a tool of its own process, and what of a turn is the agent's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from bench.clients.runs import Turn
from bench.payload import TEXT

RunTurn = Callable[[int], Awaitable[Turn]]
"""Of so many calls at once."""


class _TimedModel(WrapperModel):
    """Adds up how long the model has taken."""

    taken_s = 0.0

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        begun = time.perf_counter()
        try:
            return await super().request(messages, model_settings, model_request_parameters)
        finally:
            self.taken_s += time.perf_counter() - begun


@asynccontextmanager
async def pydantic_agent(base_url: str) -> AsyncIterator[RunTurn]:
    """Give what runs a turn of so many calls.

    Its tool is a coroutine, since one that isn't would go to a thread; and the engine is not asked to stream, which is
    less work.
    """
    tool_s = 0.0

    async def echo(text: str) -> str:
        """Say the same."""
        nonlocal tool_s
        begun = time.perf_counter()
        try:
            return text
        finally:
            tool_s += time.perf_counter() - begun

    async with AsyncOpenAI(api_key="none", base_url=base_url) as client:
        model = _TimedModel(OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client)))
        agent = Agent(model, tools=[echo])

        async def turn(calls: int) -> Turn:
            nonlocal tool_s
            model.taken_s = tool_s = 0.0
            begun = time.perf_counter()
            answer = await agent.run(str(calls))
            total_s = time.perf_counter() - begun
            if answer.output != TEXT or answer.usage.tool_calls != calls:
                raise RuntimeError(f"not the scripted turn: {answer}")
            return Turn(total_ms=total_s * 1000, engine_ms=model.taken_s * 1000, tools_ms=tool_s * 1000)

        yield turn
