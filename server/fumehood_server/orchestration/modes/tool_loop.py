"""The loop of chat and structured mode: a model answers and its tools are called, until it calls none."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import RunContext
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceRequest
from fumehood_server.orchestration.failures import failed
from fumehood_server.orchestration.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """What a loop came to."""

    messages: tuple[Message, ...]
    """What was said in it: by models, by tools, and to the run meanwhile."""
    text: str
    """Of the last answer."""
    terminated: bool
    """Whether the tools asked for the end."""


async def tool_loop(run: RunContext, messages: tuple[Message, ...], *, name: str, max_iterations: int) -> LoopResult:
    """Ask the model until it calls no tool. Failures of tools are messages to it.

    Its inferences are `{name}-1`, `{name}-2`…

    Raises:
        RunFailedError: there is no answer, it has more iterations than it may, or the budget is used up.
    """
    said: list[Message] = []
    follows = ""
    for number in range(1, max_iterations + 1):
        inference = f"{name}-{number}"
        said += run.steering(inference)
        asked = InferenceRequest(messages=(*messages, *said), tools=run.tools, hints=run.request.hints)
        answer = await run.infer(inference, asked, follows=follows)
        said.append(answer.message)
        if not answer.message.tool_uses:
            if answer.finish_reason is FinishReason.FILTERED and not answer.message.text:
                raise failed(Code.INFERENCE_ENGINE_ERROR, "the engine's own filter left nothing of the answer")
            return LoopResult(messages=tuple(said), text=answer.message.text, terminated=False)
        batch = await run.call_tools(inference, answer.message.tool_uses)
        said += batch.messages
        follows = inference
        if batch.terminate:
            return LoopResult(messages=tuple(said), text=answer.message.text, terminated=True)
    raise failed(
        Code.ORCHESTRATION_ITERATION_LIMIT,
        f"the model was asked {max_iterations} times and goes on calling tools: raise max_iterations, or ask for less",
        details={"max_iterations": max_iterations},
    )
