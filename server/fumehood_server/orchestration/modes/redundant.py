"""Mode `redundant`: replicas of one inference, all at once, vote on the output."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fumehood_server.calls.documents import NoVerdictError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.orchestration.constraints.contract import Contract, prepare, verdict_of
from fumehood_server.orchestration.constraints.faults import OutputFault, error_of, unchecked
from fumehood_server.orchestration.constraints.meaning import judge
from fumehood_server.orchestration.constraints.output import check_output
from fumehood_server.orchestration.constraints.prompts import instructions
from fumehood_server.orchestration.context import ModeResult, RunContext
from fumehood_server.orchestration.engines.engine import FinishReason, InferenceRequest
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import MODE_RULES, State
from fumehood_server.orchestration.messages import Message, Role
from fumehood_server.orchestration.modes.voting import Group, decide, grouped
from fumehood_server.orchestration.request import Mode
from fumehood_server.validation.documents import Accepted, Document, Kind

MAX_NORMALISED_CHARS = 256 * 1024
"""A longer text is compared as it stands: looking at its white space would hold up the event loop."""

_MAX_SHOWN_CHARS = 256
_RULES = MODE_RULES[Mode.REDUNDANT]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ballot:
    """What a replica came to."""

    text: str = ""
    output_json: str = ""
    vote: str = ""
    """By which votes are compared."""
    shown: str = ""
    """What was voted for, cut."""
    lost: CallError | None = None
    """Why it has no vote. None: it has one."""


async def run_redundant(run: RunContext) -> ModeResult:
    """Carry a request out in mode `redundant`.

    Each replica answers, is mended and is checked by itself; tools are not called. One whose inference fails, or whose
    output has faults, has no vote. The output is that of the lowest number among those that won, and its confidence
    their share of all that were asked.

    Raises:
        RunFailedError: ORCHESTRATION_NO_CONSENSUS, with the votes. Where nobody has a vote: why the replica of the
            lowest number has none. CONFIG_*: the contract can't be used.
    """
    request = run.request
    run.enter(State.PREPARE, "the contract is read")
    contract = await prepare(request.output, run.checks, key=request.turn_path, vote_pointer=request.vote_pointer)
    run.enter(State.EXECUTE, f"{request.replicas} replicas")
    ballots = await _ask_all(run, contract)
    votes = {number: each.vote for number, each in ballots.items() if each.lost is None}
    run.enter(State.VALIDATE, f"{len(votes)} votes of {request.replicas}")
    groups = grouped(votes)
    won = decide(groups, request.replicas, request.consensus)
    if won is None:
        raise _no_consensus(run, ballots, groups)
    ballot = ballots[won.replicas[0]]
    return ModeResult(
        content=ballot.text,
        output_json="" if contract.is_text else ballot.output_json,
        confidence=won.votes / request.replicas,
        confidence_source="voting",
        said=(Message(role=Role.ASSISTANT, text=ballot.text),),
    )


async def _ask_all(run: RunContext, contract: Contract) -> Mapping[int, _Ballot]:
    """Ballots by the replicas' numbers, from 1. What ends the run in one replica ends the others."""
    tasks: dict[int, asyncio.Task[_Ballot]] = {}
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(1, run.request.replicas + 1):
                tasks[number] = group.create_task(_replica(run, contract, number))
    except BaseExceptionGroup as failures:
        # Whoever runs the mode knows errors by their type, and the first is why the others were cancelled.
        raise failures.exceptions[0] from None
    return {number: task.result() for number, task in tasks.items()}


async def _replica(run: RunContext, contract: Contract, number: int) -> _Ballot:
    try:
        return await _ballot(run, contract, number)
    except RunFailedError as exc:
        if exc.category is not Category.INFERENCE:
            raise
        return _Ballot(lost=exc.error)


async def _ballot(run: RunContext, contract: Contract, number: int) -> _Ballot:
    name = f"replica-{number}"
    asked, told = run.request.output, instructions(contract, run.engine)
    answer = await run.infer(
        name,
        InferenceRequest(
            messages=(*run.messages, Message(role=Role.USER, text=told)) if told else run.messages,
            hints=run.request.hints,
            schema=asked.schema if run.engine.constrains_schema else None,
            grammar=asked.grammar if run.engine.constrains_grammar else "",
        ),
    )
    text = answer.message.text
    if not text:
        message = f"replica {number} answered nothing ({answer.finish_reason})"
        return _Ballot(lost=CallError(code=Code.INFERENCE_MALFORMED_RESPONSE, message=message, retryable=False))
    checked = await check_output(
        text,
        contract,
        run.checks,
        cut_off=answer.finish_reason is FinishReason.LENGTH,
        judge=functools.partial(judge, run, f"{name}-judge"),
    )
    if checked.faults:
        return _Ballot(text=text, output_json=checked.output_json, lost=error_of(checked.faults, attempts=1))
    return await _vote(run, contract, text, checked.output_json)


async def _vote(run: RunContext, contract: Contract, text: str, output_json: str) -> _Ballot:
    """A ballot with its vote: white space of text, and order and form of JSON, make no difference."""
    if contract.is_text:
        vote = " ".join(text.split()) if len(text) <= MAX_NORMALISED_CHARS else text
        return _Ballot(text=text, output_json=output_json, vote=vote, shown=vote[:_MAX_SHOWN_CHARS])
    pointer = run.request.vote_pointer
    try:
        verdict = await verdict_of(run.checks, contract.key, Document(Kind.VOTE, "", pointer, output_json))
    except NoVerdictError as exc:
        fault = unchecked(Code.CONSTRAINT_JSON_INVALID, "vote", exc)
    else:
        if isinstance(verdict, Accepted):
            shown = verdict.text[:_MAX_SHOWN_CHARS]
            return _Ballot(text=text, output_json=output_json, vote=verdict.canonical_sha256, shown=shown)
        fault = OutputFault(Code.CONSTRAINT_SCHEMA_INVALID, pointer, "vote", "there is no value to vote with")
    return _Ballot(text=text, output_json=output_json, lost=error_of((fault,), attempts=1))


def _no_consensus(run: RunContext, ballots: Mapping[int, _Ballot], groups: Sequence[Group]) -> RunFailedError:
    lost = [(number, each.lost) for number, each in sorted(ballots.items()) if each.lost is not None]
    if not groups and lost[0][1].code.category in _RULES.emits:
        return RunFailedError(lost[0][1])
    asked = run.request.replicas
    details: dict[str, Any] = {
        "asked": asked,
        "consensus": run.request.consensus.value,
        "votes": [
            {"replicas": list(each.replicas), "votes": each.votes, "value": ballots[each.replicas[0]].shown}
            for each in groups
        ],
        "lost": [
            {"replica": number, "code": error.code.value, "message": error.message[:_MAX_SHOWN_CHARS]}
            for number, error in lost
        ],
    }
    most = groups[0].votes if groups else 0
    text = f"the replicas did not agree: {most} of {asked} at most gave the same output, and {len(lost)} gave none"
    return failed(Code.ORCHESTRATION_NO_CONSENSUS, text, details=details)
