"""Mode structured: its path, each failure that it recovers from and that it ends with, and who is asked what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from fumehood_server.calls.documents import DocumentChecks
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.context import ModeResult
from fumehood_server.orchestration.engines.engine import FinishReason
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.messages import Role
from fumehood_server.orchestration.modes.structured import run_structured
from fumehood_server.orchestration.request import Mode, OutputContract, Rule, SystemRequest

from tests.orchestration.modes.fake_run import ASKED, DICE, FakeEngine, FakeRun, Scripted, calls, said, unavailable

SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GRAMMAR = 'root ::= "yes" | "no"'
ONCE = [State.PREPARE, State.EXECUTE, State.VALIDATE]
AGAIN = [State.EXECUTE, State.VALIDATE]


def run_of(
    checks: DocumentChecks, contract: OutputContract, answers: Mapping[str, Scripted], *, retries: int = 2, **more: Any
) -> FakeRun:
    iterations = more.pop("max_iterations", 20)
    request = SystemRequest(
        request_id="r",
        is_named=False,
        messages=(ASKED,),
        mode=Mode.STRUCTURED,
        output=contract,
        max_retries=retries,
        max_iterations=iterations,
    )
    return FakeRun(request, checks, answers, **more)


async def fails(run: FakeRun) -> RunFailedError:
    with pytest.raises(RunFailedError) as told:
        await run_structured(run)
    assert run.may_emit(told.value.error.code)
    return told.value


async def test_an_output_that_fits_is_given_at_once(checks: DocumentChecks) -> None:
    run = run_of(checks, OutputContract(schema=SCHEMA), {"output-1": '{"n": 1}'})
    result = await run_structured(run)
    assert result == ModeResult(content='{"n": 1}', output_json='{"n": 1}', said=result.said)
    assert [message.text for message in result.said] == ['{"n": 1}']
    assert run.states == ONCE
    assert run.asked["output-1"].schema == SCHEMA
    assert run.asked["output-1"].messages == (ASKED,)


async def test_tools_are_called_first_and_then_removed(checks: DocumentChecks) -> None:
    answers: dict[str, Scripted] = {"tools-1": calls("roll_dice"), "tools-2": "Six.", "output-1": '{"n": 6}'}
    run = run_of(checks, OutputContract(schema=SCHEMA), answers, tools=(DICE,))
    result = await run_structured(run)
    assert result.output_json == '{"n": 6}'
    assert run.called == ["roll_dice"]
    assert [run.asked[name].tools for name in ("tools-1", "tools-2", "output-1")] == [(DICE,), (DICE,), ()]
    assert [run.asked[name].schema for name in ("tools-1", "tools-2", "output-1")] == [None, None, SCHEMA]
    assert run.asked["output-1"].messages == (ASKED, *result.said[:-1])
    roles = [message.role for message in result.said]
    assert roles == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT, Role.USER, Role.ASSISTANT]


async def test_tools_that_ask_for_the_end_end_their_phase_alone(checks: DocumentChecks) -> None:
    answers: dict[str, Scripted] = {"tools-1": calls("roll_dice"), "output-1": '{"n": 6}'}
    run = run_of(checks, OutputContract(schema=SCHEMA), answers, tools=(DICE,), terminate=True)
    assert (await run_structured(run)).output_json == '{"n": 6}'


@pytest.mark.parametrize("constrained", [True, False])
async def test_what_the_engine_does_not_hold_to_is_told_to_the_model(checks: DocumentChecks, constrained: bool) -> None:
    engine = FakeEngine(constrains_schema=constrained, constrains_grammar=constrained)
    by_schema = run_of(checks, OutputContract(schema=SCHEMA), {"output-1": '{"n": 1}'}, engine=engine)
    by_grammar = run_of(checks, OutputContract(grammar=GRAMMAR), {"output-1": "yes"}, engine=engine)
    assert (await run_structured(by_schema)).output_json == '{"n": 1}'
    assert (await run_structured(by_grammar)).output_json == '"yes"'
    assert ('"integer"' in by_schema.told("output-1")) is not constrained
    assert (GRAMMAR in by_grammar.told("output-1")) is not constrained
    assert by_schema.asked["output-1"].schema == (SCHEMA if constrained else None)
    assert by_grammar.asked["output-1"].grammar == (GRAMMAR if constrained else "")


async def test_rules_are_told_to_the_model_in_any_case(checks: DocumentChecks) -> None:
    rules = (Rule(name="few", pointer="/n", minimum=1, maximum=9, one_of=(1, 2), pattern="x"), Rule(name="there"))
    run = run_of(checks, OutputContract(schema=SCHEMA, rules=rules), {"output-1": "{}"}, retries=0)
    await run_structured(run)
    assert "few: the value at /n is one of [1, 2] and matches" in run.told("output-1")


@pytest.mark.parametrize("mendable", [True, False])
async def test_broken_json_is_mended_or_asked_for_again(checks: DocumentChecks, mendable: bool) -> None:
    contract = OutputContract(schema=SCHEMA, repair_allowed=mendable)
    run = run_of(checks, contract, {"output-1": "```json\n{'n': 1,}\n```", "output-2": '{"n": 2}'})
    result = await run_structured(run)
    assert result.output_json == ('{"n":1}' if mendable else '{"n": 2}')
    assert run.states == (ONCE if mendable else ONCE + AGAIN)


async def test_the_model_is_asked_again_with_its_last_faults_explained(checks: DocumentChecks) -> None:
    answers = {"output-1": '{"n": "one"}', "output-2": '{"m": 1}', "output-3": '{"n": 3}'}
    run = run_of(checks, OutputContract(schema=SCHEMA, strict=True), answers)
    result = await run_structured(run)
    assert (result.output_json, result.error) == ('{"n": 3}', None)
    assert run.states == ONCE + AGAIN * 2
    assert "at /n" in run.told("output-2")
    assert '{"n": "one"}' in run.told("output-2")
    assert '"n" is required' in run.told("output-3")
    assert '{"n": "one"}' not in run.told("output-3")
    assert [message.text for message in result.said] == ['{"n": 3}']


@pytest.mark.parametrize(("retries", "attempts"), [(-1, 1), (0, 1), (1, 2), (2, 3)])
async def test_a_strict_contract_fails_with_the_last_faults_after_its_retries(
    checks: DocumentChecks, retries: int, attempts: int
) -> None:
    answers = {f"output-{number}": '{"n": "one"}' for number in range(1, 9)}
    run = run_of(checks, OutputContract(schema=SCHEMA, strict=True), answers, retries=retries)
    error = (await fails(run)).error
    assert error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert error.details["attempts"] == len(run.asked) == attempts
    assert error.details["faults"][0] | {"message": ""} == {
        "code": "CONSTRAINT_SCHEMA_INVALID",
        "pointer": "/n",
        "rule": "type",
        "message": "",
    }
    json.dumps(error.details)
    assert run.states == ONCE + AGAIN * (attempts - 1)


@pytest.mark.parametrize(("text", "output"), [('{"n": "one"}', '{"n": "one"}'), ("none", "")])
async def test_another_contract_gives_what_there_is_with_its_faults(
    checks: DocumentChecks, text: str, output: str
) -> None:
    run = run_of(checks, OutputContract(schema=SCHEMA), {"output-1": text}, retries=0)
    result = await run_structured(run)
    assert (result.content, result.output_json) == (text, output)
    assert result.error is not None
    assert run.may_emit(result.error.code)


async def test_an_answer_that_leaves_its_grammar_is_asked_for_again(checks: DocumentChecks) -> None:
    run = run_of(checks, OutputContract(grammar=GRAMMAR, strict=True), {"output-1": "maybe", "output-2": "no"})
    assert (await run_structured(run)).output_json == '"no"'
    assert "leaves the grammar" in run.told("output-2")


@pytest.mark.parametrize(
    ("contract", "code"),
    [
        (OutputContract(), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(rules=(Rule(name="x", pattern="y"),)), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(schema={"type": 1}), Code.CONFIG_SCHEMA_REQUIRED),
        (OutputContract(grammar="nowhere"), Code.CONFIG_GRAMMAR_NOT_FOUND),
    ],
)
async def test_a_contract_that_can_not_be_used_fails_before_a_model_is_asked(
    checks: DocumentChecks, contract: OutputContract, code: Code
) -> None:
    run = run_of(checks, contract, {}, tools=(DICE,))
    assert (await fails(run)).error.code is code
    assert run.states == [State.PREPARE]
    assert run.asked == {}


async def test_rules_and_meaning_give_a_confidence(checks: DocumentChecks) -> None:
    contract = OutputContract(
        schema=SCHEMA, rules=(Rule(name="few", pointer="/n", maximum=9),), semantic_check="Is n what was asked for?"
    )
    answers = {"output-1": '{"n": 10}', "output-2": '{"n": 9}', "output-2-judge": "```json\n{'answer': 'Yes.'}```"}
    run = run_of(checks, contract, answers)
    result = await run_structured(run)
    assert (result.output_json, result.confidence, result.confidence_source) == ('{"n": 9}', 1.0, "validation")
    assert 'rule "few"' in run.told("output-2")
    question = run.asked["output-2-judge"]
    assert json.loads(question.messages[-1].text) == {
        "question": "Is n what was asked for?",
        "output": '{"n": 9}',
    }
    assert question.tools == ()


@pytest.mark.parametrize("verdict", ['{"answer": "no", "reason": "It is odd."}', "Who knows?", '{"answer": "maybe"}'])
async def test_an_output_that_is_not_judged_right_is_wrong(checks: DocumentChecks, verdict: str) -> None:
    contract = OutputContract(schema=SCHEMA, strict=True, semantic_check="Is it even?")
    answers = {"output-1": '{"n": 1}', "output-1-judge": verdict, "output-2": '{"n": 3}', "output-2-judge": verdict}
    run = run_of(checks, contract, answers, retries=1)
    error = (await fails(run)).error
    assert error.code is Code.VALIDATION_SEMANTIC_FAILED
    assert ("It is odd." in run.told("output-2")) is ("odd" in verdict)


async def test_an_answer_cut_off_at_its_most_tokens_is_not_mended(checks: DocumentChecks) -> None:
    contract = OutputContract(schema={"type": "array"}, repair_allowed=True, strict=True)
    run = run_of(checks, contract, {"output-1": said("[1, 2", finish=FinishReason.LENGTH)}, retries=0)
    assert (await fails(run)).error.code is Code.CONSTRAINT_JSON_INVALID
    control = run_of(checks, contract, {"output-1": "[1, 2"}, retries=0)
    assert (await run_structured(control)).output_json == "[1,2]"


@pytest.mark.parametrize("name", ["tools-1", "tools-2", "output-1", "output-1-judge", "output-2"])
async def test_an_inference_that_fails_ends_the_run_with_its_own_error(checks: DocumentChecks, name: str) -> None:
    contract = OutputContract(schema=SCHEMA, semantic_check="Is it?")
    answers: dict[str, Scripted] = {
        "tools-1": calls("roll_dice"),
        "tools-2": "Six.",
        "output-1": '{"n": 6}',
        "output-1-judge": '{"answer": "no"}',
        "output-2": '{"n": 7}',
        "output-2-judge": '{"answer": "yes"}',
    }
    run = run_of(checks, contract, answers | {name: unavailable()}, tools=(DICE,))
    error = (await fails(run)).error
    assert (error.code, error.retryable) == (Code.INFERENCE_MODEL_UNAVAILABLE, True)
    control = run_of(checks, contract, answers, tools=(DICE,))
    assert (await run_structured(control)).output_json == '{"n": 7}'


async def test_a_model_that_calls_tools_for_ever_is_stopped(checks: DocumentChecks) -> None:
    answers = {f"tools-{number}": calls("roll_dice") for number in range(1, 9)}
    run = run_of(checks, OutputContract(schema=SCHEMA), answers, tools=(DICE,), max_iterations=3)
    assert (await fails(run)).error.code is Code.ORCHESTRATION_ITERATION_LIMIT
    assert len(run.called) == 3


async def test_a_tool_that_is_called_where_none_is_there_is_not_passed_on(checks: DocumentChecks) -> None:
    run = run_of(checks, OutputContract(schema=SCHEMA), {"output-1": calls("roll_dice"), "output-2": '{"n": 1}'})
    result = await run_structured(run)
    assert run.called == []
    assert all(not message.tool_uses for message in (*run.asked["output-2"].messages, *result.said))


async def test_a_budget_that_is_used_up_ends_the_run(checks: DocumentChecks) -> None:
    spent = failed(Code.TOOL_QUOTA_EXCEEDED, "the run's budget is used up")
    run = run_of(checks, OutputContract(schema=SCHEMA), {"output-1": spent})
    with pytest.raises(RunFailedError) as told:
        await run_structured(run)
    assert told.value is spent


@pytest.mark.parametrize("name", ["tools-1", "output-1", "output-1-judge"])
async def test_a_cancelled_run_leaves_nothing_under_way(checks: DocumentChecks, name: str) -> None:
    answers = {"tools-1": "Well.", "output-1": '{"n": 1}', "output-1-judge": "yes"}
    run = run_of(
        checks,
        OutputContract(schema=SCHEMA, semantic_check="Is it?"),
        answers,
        tools=(DICE,),
        gates={name: asyncio.Event()},
    )
    task = asyncio.create_task(run_structured(run))
    await run.until(lambda: name in run.under_way)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.under_way == set()
