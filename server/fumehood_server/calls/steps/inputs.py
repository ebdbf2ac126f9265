"""What a call's tool may ask for while it runs: a person's answer (`ask`), and a model's."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood_server.calls.call import Call
from fumehood_server.calls.progress import Progress
from fumehood_server.calls.steps.ask import AskParts, ask_person
from fumehood_server.errors import PluginRequestError
from fumehood_server.model.inferences import AskedInference, GivenInference, Models
from fumehood_server.model.plugin import RegisteredTool
from fumehood_server.model.questions import Answer, Question

MAX_INFERENCES = 32
"""Of one call. Quotas say how much of an engine a caller may use over all of them."""


@dataclass(frozen=True, slots=True)
class InputParts:
    """What answers need of the sidecar."""

    asks: AskParts
    models: Models | None
    """None: there are no engines."""


class StepInputs:
    """Answers one attempt of a call: see `fumehood_server.model.call_inputs.CallInputs`."""

    __slots__ = ("_call", "_parts", "_progress", "_tool")

    def __init__(self, call: Call, tool: RegisteredTool, progress: Progress, parts: InputParts) -> None:
        """Nothing is asked yet."""
        self._call = call
        self._tool = tool
        self._progress = progress
        self._parts = parts

    async def ask(self, question: Question) -> Answer:
        """See `CallInputs`."""
        return await ask_person(self._call, self._tool, self._progress, self._parts.asks, question)

    async def infer(self, asked: AskedInference) -> GivenInference:
        """See `CallInputs`."""
        progress, tool = self._progress, self._tool
        if self._parts.models is None or tool.spec is None or not tool.spec.engine:
            problem = f'the operator has granted no model to the plugin "{tool.plugin}" (`engine` of its [[plugin]])'
            raise PluginRequestError("engine_not_granted", problem)
        if progress.inferences >= MAX_INFERENCES:
            problem = f"the call has asked for {MAX_INFERENCES} inferences, and may ask for no more"
            raise PluginRequestError("inference_limit", problem)
        progress.inferences += 1
        return await self._parts.models.infer(
            asked,
            progress.inferences,
            call=self._call.request,
            tool=tool,
            about=self._call.about,
            redact=None if progress.redactor is None else progress.redactor.data_beside,
        )
