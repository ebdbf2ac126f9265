"""Mode redundant: replicas at once, what makes them agree, which losses are borne, and which end the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import FinishReason
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.modes.redundant import run_redundant
from fumehood_server.orchestration.request import Consensus, Mode, OutputContract, Rule, SystemRequest

from tests.orchestration.modes.fake_run import ASKED, DICE, FakeEngine, FakeRun, Scripted, said, unavailable

SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TEXT = OutputContract()
JSON = OutputContract(schema=SCHEMA)
MENDED = OutputContract(schema=SCHEMA, repair_allowed=True)


def run_of(
    checks: DocumentChecks,
    answers: list[Scripted],
    contract: OutputContract = TEXT,
    *,
    consensus: Consensus = Consensus.MAJORITY,
    pointer: str = "",
    **more: Any,
) -> FakeRun:
    request = SystemRequest(
        request_id="r",
        is_named=False,
        messages=(ASKED,),
        mode=Mode.REDUNDANT,
        output=contract,
        replicas=len(answers),
        consensus=consensus,
        vote_pointer=pointer,
    )
    named = {f"replica-{number}": answer for number, answer in enumerate(answers, start=1)}
    return FakeRun(request, checks, named | more.pop("judges", {}), **more)


async def fails(run: FakeRun) -> RunFailedError:
    with pytest.raises(RunFailedError) as told:
        await run_redundant(run)
    return told.value


async def all_asked(run: FakeRun) -> None:
    await run.until(lambda: len(run.under_way) == run.request.replicas)


async def test_all_replicas_are_under_way_at_once_and_the_last_to_answer_may_be_the_first_by_number(
    checks: DocumentChecks,
) -> None:
    gates = {f"replica-{number}": asyncio.Event() for number in range(1, 4)}
    run = run_of(checks, ["one", "two", "three"], consensus=Consensus.PLURALITY, gates=gates)
    task = asyncio.create_task(run_redundant(run))
    await all_asked(run)
    for number in (3, 2, 1):
        gates[f"replica-{number}"].set()
        await run.until(lambda: len(run.under_way) == number - 1)  # noqa: B023 - it is awaited here
    result = await task
    assert (result.content, result.confidence) == ("one", 1 / 3)
    assert run.states == [State.PREPARE, State.EXECUTE, State.VALIDATE]


async def test_texts_agree_whatever_their_white_space(checks: DocumentChecks) -> None:
    run = run_of(checks, ["It is  six.\n", "It is five.", " It is\nsix."], tools=(DICE,))
    result = await run_redundant(run)
    assert (result.content, result.output_json) == ("It is  six.\n", "")
    assert (result.confidence, result.confidence_source) == (2 / 3, "voting")
    assert [message.text for message in result.said] == [result.content]
    assert all(request.tools == () for request in run.asked.values())


async def test_json_agrees_by_what_it_says(checks: DocumentChecks) -> None:
    answers: list[Scripted] = ['{"n": 1, "m": 2}', '{"m":2.0,"n":1}', '{"n": 1, "m": 3}']
    result = await run_redundant(run_of(checks, answers, JSON))
    assert (result.output_json, result.confidence) == ('{"n": 1, "m": 2}', 2 / 3)


async def test_each_replica_is_mended_by_itself(checks: DocumentChecks) -> None:
    answers: list[Scripted] = ["{'n': 1}", '```json\n{"n": 1}\n```', '{"n": 2}']
    result = await run_redundant(run_of(checks, answers, MENDED))
    assert (json.loads(result.output_json), result.confidence) == ({"n": 1}, 2 / 3)
    error = (await fails(run_of(checks, answers, JSON))).error
    assert error.code is Code.ORCHESTRATION_NO_CONSENSUS


@pytest.mark.parametrize("contract", [JSON, TEXT])
async def test_a_part_of_the_output_may_be_what_is_voted_on(checks: DocumentChecks, contract: OutputContract) -> None:
    answers: list[Scripted] = ['{"n":1,"why":"a"}', '{"n":2,"why":"b"}', '{"n":1,"why":"c"}']
    result = await run_redundant(run_of(checks, answers, contract, pointer="/n"))
    assert (result.output_json, result.confidence) == ('{"n":1,"why":"a"}', 2 / 3)
    nowhere = (await fails(run_of(checks, answers, contract, pointer="/m"))).error
    assert nowhere.code is Code.CONSTRAINT_SCHEMA_INVALID


async def test_grammars_are_checked_for_each_replica(checks: DocumentChecks) -> None:
    contract = OutputContract(grammar='root ::= "yes" | "no"')
    run = run_of(checks, ["yes", "Yes", "yes"], contract, engine=FakeEngine(constrains_grammar=False))
    result = await run_redundant(run)
    assert (result.output_json, result.confidence) == ('"yes"', 2 / 3)
    assert contract.grammar in run.told("replica-1")


@pytest.mark.parametrize(
    ("answers", "consensus", "confidence"),
    [
        (["a", unavailable(), "a"], Consensus.MAJORITY, 2 / 3),
        ([unavailable(), "a", "a"], Consensus.MAJORITY, 2 / 3),
        (["a", unavailable(), unavailable()], Consensus.PLURALITY, 1 / 3),
        (["a", said("", finish=FinishReason.FILTERED), "a"], Consensus.MAJORITY, 2 / 3),
    ],
)
async def test_a_lost_replica_is_not_a_lost_run(
    checks: DocumentChecks, answers: list[Scripted], consensus: Consensus, confidence: float
) -> None:
    result = await run_redundant(run_of(checks, answers, consensus=consensus))
    assert (result.content, result.confidence) == ("a", confidence)


async def test_no_consensus_tells_the_votes_and_the_losses(checks: DocumentChecks) -> None:
    answers: list[Scripted] = ["b", "a " * 400, "b", unavailable()]
    run = run_of(checks, answers)
    error = (await fails(run)).error
    assert error.code is Code.ORCHESTRATION_NO_CONSENSUS
    assert error.details == {
        "asked": 4,
        "consensus": "majority",
        "votes": [
            {"replicas": [1, 3], "votes": 2, "value": "b"},
            {"replicas": [2], "votes": 1, "value": ("a " * 400)[:256]},
        ],
        "lost": [{"replica": 4, "code": "INFERENCE_MODEL_UNAVAILABLE", "message": "the model is away"}],
    }
    assert run.states[-1] is State.VALIDATE


@pytest.mark.parametrize(("last", "agreed"), [("a", True), ("b", False), (unavailable(), False)])
async def test_unanimity_takes_every_replica(checks: DocumentChecks, last: Scripted, agreed: bool) -> None:
    run = run_of(checks, ["a", "a", last], consensus=Consensus.UNANIMOUS)
    if agreed:
        assert (await run_redundant(run)).confidence == 1.0
    else:
        assert (await fails(run)).error.code is Code.ORCHESTRATION_NO_CONSENSUS


@pytest.mark.parametrize(
    ("answers", "contract", "code"),
    [
        ([unavailable(), unavailable()], TEXT, Code.INFERENCE_MODEL_UNAVAILABLE),
        ([unavailable(), "none"], JSON, Code.INFERENCE_MODEL_UNAVAILABLE),
        (["none", unavailable()], JSON, Code.CONSTRAINT_JSON_INVALID),
        (['{"n":1}', '{"n":1}'], OutputContract(rules=(Rule(name="x", pattern="y"),)), Code.ORCHESTRATION_NO_CONSENSUS),
    ],
)
async def test_where_nobody_has_a_vote_the_first_replicas_reason_is_told(
    checks: DocumentChecks, answers: list[Scripted], contract: OutputContract, code: Code
) -> None:
    run = run_of(checks, answers, contract)
    assert (await fails(run)).error.code is code
    assert run.may_emit(code)


async def test_a_replica_that_is_not_judged_right_has_no_vote(checks: DocumentChecks) -> None:
    judges = {f"replica-{number}-judge": '{"answer":"yes"}' for number in (1, 3)} | {"replica-2-judge": "no idea"}
    run = run_of(checks, ["a", "a", "a"], OutputContract(semantic_check="Is it?"), judges=judges)
    assert (await run_redundant(run)).confidence == 2 / 3


@pytest.mark.parametrize("contract", [OutputContract(schema={"type": 1}), OutputContract(grammar="nowhere")])
async def test_a_contract_that_can_not_be_used_fails_before_a_model_is_asked(
    checks: DocumentChecks, contract: OutputContract
) -> None:
    run = run_of(checks, ["a", "a"], contract)
    assert (await fails(run)).error.code.startswith("CONFIG_")
    assert run.asked == {}


async def test_what_ends_the_run_in_one_replica_ends_the_others(checks: DocumentChecks) -> None:
    spent = failed(Code.TOOL_QUOTA_EXCEEDED, "the run's budget is used up")
    run = run_of(checks, ["a", spent, "a"], gates={"replica-1": asyncio.Event(), "replica-3": asyncio.Event()})
    assert await fails(run) is spent
    assert run.under_way == set()


async def test_a_cancelled_run_leaves_no_replica_under_way(checks: DocumentChecks) -> None:
    run = run_of(checks, ["a", "a"], gates={"replica-1": asyncio.Event(), "replica-2": asyncio.Event()})
    task = asyncio.create_task(run_redundant(run))
    await all_asked(run)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.under_way == set()
