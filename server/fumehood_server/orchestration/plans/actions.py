"""What a step does: asks a model, calls a tool, checks an earlier output. Again after failures, as often as it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fumehood_server.model.call import CallError, CallOutcome
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import RunContext
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.plans.asking import Asker, PlainText, Question, as_subject
from fumehood_server.orchestration.plans.long_json import loaded_strictly
from fumehood_server.orchestration.plans.plan import ExecutionPlan
from fumehood_server.orchestration.plans.rendering import NO_ITEM, Renderer
from fumehood_server.orchestration.plans.steps import InferAction, ToolAction, ValidateStep
from fumehood_server.orchestration.request import OutputContract
from fumehood_server.validation.strict_json import JsonError

FIRST_DELAY_S = 0.1
"""Before a call is made again. Doubled each time: the executor has made its own attempts before."""
LONGEST_DELAY_S = 60.0
"""What has to wait longer, such as for a quota, is not made again by a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """One time that an action is carried out: of a step, or of one item of a `map`."""

    step: str
    item: int = 0
    """From 1. 0: it is of no map."""
    value: Any = NO_ITEM
    retries: int
    begins: Callable[[CallError | None], None] = field(compare=False)
    """Told before each attempt, with the failure of the attempt before."""

    def name(self, attempt: int) -> str:
        """Name of an inference or call: the same whenever the run is carried out again, and no other's.

        The two numbers at its end are always there, so that no step's name reads as another's with its numbers.
        """
        return f"{self.step}-{self.item}-{attempt}"


class Actions:
    """Carries out what steps ask for, in one run."""

    __slots__ = ("_asker", "_outputs", "_plan", "_run")

    def __init__(self, run: RunContext, plan: ExecutionPlan, asker: Asker, outputs: Mapping[str, Any]) -> None:
        """`outputs`, by the steps' names, grow as steps end."""
        self._run = run
        self._plan = plan
        self._asker = asker
        self._outputs = outputs

    async def carry_out(self, action: InferAction | ToolAction, occasion: Occasion) -> Any:  # noqa: ANN401 - any JSON value
        """What the action comes to.

        Raises:
            RunFailedError: it failed, and is not tried again.
        """
        if isinstance(action, InferAction):
            return await self._infer(action, occasion)
        return await self._call(action, occasion)

    async def validate(self, step: ValidateStep, occasion: Occasion) -> Any:  # noqa: ANN401 - any JSON value
        """What was found to be right: the value that the step checks, or another that the model gave in its place.

        Raises:
            RunFailedError: it is not right, nor is any that the model gave.
        """
        value = Renderer(self._outputs).value(step.of)
        said, contract = await as_subject(value, step.contract)
        occasion.begins(None)
        error, found = await self._asker.verdict(said, (contract,), occasion.name(0))
        if error is None:
            return found
        source = self._plan.source_of(step.subject)
        if source is None or not step.retries:
            raise RunFailedError(error)
        contracts = (*source.contracts, contract)
        question = await self.question(
            source.step, contracts, most=step.retries, name_of=occasion.name, begins=occasion.begins
        )
        return await self._asker.answer(question, said, error)

    async def question(
        self,
        action: InferAction,
        contracts: tuple[OutputContract, ...],
        *,
        most: int,
        name_of: Callable[[int], str],
        begins: Callable[[CallError | None], None] = lambda _error: None,
        item: Any = NO_ITEM,  # noqa: ANN401 - any JSON value
    ) -> Question:
        """What a model is asked for an action.

        Raises:
            RunFailedError: its prompt can't be made.
        """
        renderer = Renderer(self._outputs, item)
        prompt = await renderer.made(renderer.prompt, action.prompt)
        before = self._run.messages if action.sees_conversation else ()
        messages = (*before, Message(role=Role.USER, text=prompt))
        return Question(messages=messages, contracts=contracts, most=most, name_of=name_of, begins=begins)

    async def _infer(self, action: InferAction, occasion: Occasion) -> Any:  # noqa: ANN401 - any JSON value
        question = await self.question(
            action,
            (action.contract,),
            most=1 + occasion.retries,
            name_of=occasion.name,
            begins=occasion.begins,
            item=occasion.value,
        )
        return await self._asker.answer(question)

    async def _call(self, action: ToolAction, occasion: Occasion) -> Any:  # noqa: ANN401 - any JSON value
        renderer = Renderer(self._outputs, occasion.value)
        arguments = await renderer.made(renderer.object_text, action.arguments)
        error: CallError | None = None
        for attempt in range(1, 2 + occasion.retries):
            occasion.begins(error)
            try:
                outcome = await self._run.call_tool(occasion.name(attempt), action.tool, arguments)
            except RunFailedError as exc:
                error = exc.error
            else:
                if outcome.error is None:
                    return await output_of(outcome)
                error = outcome.error
            delay_s = _delay_s(error, attempt)
            if attempt > occasion.retries or delay_s is None:
                raise RunFailedError(error)
            await asyncio.sleep(delay_s)
        raise AssertionError("the last attempt returns or raises")


async def output_of(outcome: CallOutcome) -> Any:  # noqa: ANN401 - any JSON value
    """A tool's structured result; its text where it has none.

    Raises:
        RunFailedError: it is no JSON that is taken of anybody (CONSTRAINT_JSON_INVALID).
    """
    if outcome.details_json:
        try:
            return await loaded_strictly(outcome.details_json)
        except JsonError as exc:
            raise failed(Code.CONSTRAINT_JSON_INVALID, f"the tool's result {exc.problem}") from None
    return PlainText("\n".join(block.text for block in outcome.content if block.text is not None))


def _delay_s(error: CallError, attempt: int) -> float | None:
    """How long to wait before a call is made again. None: it is not.

    `retryable` tells that the same call may be made again: of a call that may have had effects it never does.
    """
    if not error.retryable:
        return None
    asked = error.details.get("retry_after_s")
    delay_s = max(float(asked) if isinstance(asked, int | float) else 0.0, FIRST_DELAY_S * 2 ** (attempt - 1))
    return delay_s if delay_s <= LONGEST_DELAY_S else None
