"""Asks a model until its answer fits: its fault is explained, and the next is held against the same contracts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.orchestration.context import RunContext
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.plans.checking import OutputChecks
from fumehood_server.orchestration.plans.long_json import dumped
from fumehood_server.orchestration.request import OutputContract

MAX_SHOWN_CHARS = 16 * 1024
"""Of a faulty answer, and of its faults, when the model is asked again."""
EXPLAINED = frozenset({Category.CONSTRAINT, Category.VALIDATION})
"""Failures that a model can mend."""


_AGAIN = "Give the whole answer again, with nothing beside it."


class PlainText(str):
    """An output that is text and no JSON: where a schema has to hold of it, it is read as JSON."""

    __slots__ = ()


async def as_subject(
    value: Any,  # noqa: ANN401 - any JSON value
    contract: OutputContract,
) -> tuple[Said, OutputContract]:
    """A value as the text that a contract is held against. Of what is JSON, rules speak of JSON."""
    if isinstance(value, PlainText):
        return Said(str(value)), contract  # readers of JSON take no class of ours
    if contract.schema is None and not contract.grammar:
        contract = replace(contract, schema={})
    return Said(await dumped(value)), contract


@dataclass(frozen=True, slots=True)
class Said:
    """A text that a model gave, or a step."""

    text: str
    cut_off: bool = False
    """Whether the model was stopped in the middle: it has as many tokens as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model is asked, and what its answer has to be."""

    messages: tuple[Message, ...]
    """At least one."""
    contracts: Sequence[OutputContract] = ()
    """All of them hold. An empty one takes anything."""
    schema: Mapping[str, Any] | None = None
    """What the engine may hold its decoding to. None: the first schema of the contracts."""
    most: int
    """Inferences, checks by a model not counted."""
    name_of: Callable[[int], str]
    """Name of an inference, by its number from 1. At most 38 characters."""
    begins: Callable[[CallError | None], None] = lambda _error: None
    """Told before each inference, with the fault of the answer before."""


class Asker:
    """Asks in one run."""

    __slots__ = ("_checks", "_run")

    def __init__(self, run: RunContext, checks: OutputChecks) -> None:
        """`checks` hold answers against contracts."""
        self._run = run
        self._checks = checks

    async def prepare(self, contracts: Iterable[OutputContract]) -> None:
        """Find out whether contracts can be used.

        Raises:
            RunFailedError: one can't.
        """
        for contract in contracts:
            if not contract.is_empty:
                await self._checks.prepare(contract)

    async def answer(self, question: Question, said: Said | None = None, error: CallError | None = None) -> Any:  # noqa: ANN401 - any JSON value
        """The first answer that fits. `said` is one that there is already, and `error` its fault.

        Raises:
            RunFailedError: there was no answer, or none of them fits.
        """
        attempt = 0
        while True:
            attempt += 1
            question.begins(error)
            said = await self.ask(question, attempt, said, error)
            error, value = await self.verdict(said, question.contracts, question.name_of(attempt))
            if error is None:
                return value
            if error.code.category not in EXPLAINED or attempt >= question.most:
                raise RunFailedError(error)

    async def verdict(self, said: Said, contracts: Sequence[OutputContract], name: str) -> tuple[CallError | None, Any]:
        """What is wrong with a text, or what it comes to: JSON under a schema, else text.

        Raises:
            RunFailedError: it could not be checked.
        """
        text, value = said.text, None
        is_json = False
        for index, contract in enumerate(each for each in contracts if not each.is_empty):
            judge = f"{name}-{chr(ord('a') + index)}"
            checked = await self._checks.check(text, contract, cut_off=said.cut_off, judge=judge)
            if checked.error is not None:
                return checked.error, None
            text = checked.text
            if checked.is_json:
                value, is_json = checked.value, True
        return None, value if is_json else PlainText(text)

    async def ask(self, question: Question, attempt: int, said: Said | None, error: CallError | None) -> Said:
        """The answer, which nobody has looked at. `said` is the answer before, and `error` its fault.

        Raises:
            RunFailedError: there is none.
        """
        messages = await self._told(question)
        if said is not None and error is not None:
            messages += (Message(role=Role.ASSISTANT, text=said.text[:MAX_SHOWN_CHARS]), _explanation(error))
        engine = self._run.engine
        schemas = [each.schema for each in question.contracts if each.schema is not None]
        grammars = [each.grammar for each in question.contracts if each.grammar]
        schema = question.schema or (schemas[0] if schemas else None)
        request = InferenceRequest(
            messages=messages,
            hints=self._run.request.hints,
            schema=schema if engine.constrains_schema else None,
            grammar=grammars[0] if grammars and engine.constrains_grammar else "",
        )
        answer = await self._run.infer(question.name_of(attempt), request)
        if not answer.message.text or answer.finish_reason is FinishReason.FILTERED:
            raise failed(
                Code.INFERENCE_MALFORMED_RESPONSE, f"the model gave no whole text ({answer.finish_reason.value})"
            )
        # Half of a surrogate pair, which JSON can name, can't be sent on.
        text = answer.message.text.encode("utf-8", "replace").decode()
        return Said(text, answer.finish_reason is FinishReason.LENGTH)

    async def _told(self, question: Question) -> tuple[Message, ...]:
        """The question's messages, with what the model has to know of the contracts at their end."""
        found = [await self._checks.instructions(each) for each in question.contracts if not each.is_empty]
        *before, last = question.messages
        return (*before, replace(last, text="\n\n".join([last.text, *filter(None, found)])))


def _explanation(error: CallError) -> Message:
    faults = error.details.get("faults")
    told = f"\n{json.dumps(faults, ensure_ascii=False, default=str)}" if faults else ""
    text = f"This answer can't be used. {error.message}{told}"
    return Message(role=Role.USER, text=f"{text[:MAX_SHOWN_CHARS]}\n{_AGAIN}")
