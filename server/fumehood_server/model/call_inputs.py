"""What a call's tool may ask for while it runs, beyond its process's own requests: a person's answer, a model's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fumehood_server.model.inferences import AskedInference, GivenInference
    from fumehood_server.model.questions import Answer, Question


class CallInputs(Protocol):
    """Answers one call. Cancelling what waits takes the question back. Each raises PluginRequestError: no answer."""

    async def ask(self, question: Question) -> Answer:
        """Have a person asked."""

    async def infer(self, asked: AskedInference) -> GivenInference:
        """Have a model asked."""
