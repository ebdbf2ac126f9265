"""Plans that a model makes: what it is told, what is explained to it, and when it has had its chances."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.engines.engine import OfferedTool
from fumehood_server.orchestration.failures import RunFailedError, failed
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.plans.parsing import parse_plan
from fumehood_server.orchestration.plans.planner import MAX_ATTEMPTS
from fumehood_server.orchestration.plans.prompt import MAX_TOOLS_CHARS, planning_instructions
from fumehood_server.orchestration.plans.schema import plan_schema
from fumehood_server.orchestration.request import PlanPolicy

from tests.orchestration.plans.fake import FakeRun, carry_out, failure_of, infer_step, run_of, tool_step


def planned(*answers: Any, **knobs: Any) -> FakeRun:
    """A run whose model gives these plans one after the other."""
    texts = [each if isinstance(each, str | Exception) else json.dumps(each) for each in answers]
    named = {f"plan-{number}": text for number, text in enumerate(texts, 1)}
    return run_of(None, answers=named, tools_by_name={"echo": lambda given: given}, **knobs)


GOOD = {"rationale": "one is enough", "steps": [tool_step("a", arguments={"n": 1})]}


async def test_a_model_s_plan_is_carried_out_and_the_trace_says_whose_it_is() -> None:
    run = planned(GOOD)
    result = await carry_out(run)
    assert json.loads(result.output_json) == {"n": 1}
    trace = json.loads(result.plan_trace_json)
    found = [trace[key] for key in ("planner_id", "rationale", "planning_attempts", "step_count")]
    assert found == ["model:scripted", "one is enough", 1, 1]
    assert run.entered[:2] == [State.PLAN, State.PREPARE]


async def test_the_model_is_told_the_tools_and_the_conversation() -> None:
    run = planned(GOOD)
    await carry_out(run)
    asked = run.inferences["plan-1"]
    assert '{"tool":"echo","description":"Does echo.","arguments":{"type":"object"}}' in asked.messages[0].text
    assert asked.messages[1].text == "What is in the notes?"
    assert asked.tools == ()


@pytest.mark.parametrize("constrains", [True, False])
async def test_the_plan_s_schema_is_the_engine_s_where_it_holds_to_it_and_else_the_prompt_s(constrains: bool) -> None:
    run = planned(GOOD, constrains_schema=constrains)
    await carry_out(run)
    asked = run.inferences["plan-1"]
    assert (asked.schema is not None) is constrains
    assert ("JSON Schema: {" in asked.messages[0].text) is not constrains


async def test_a_plan_in_a_fence_is_taken() -> None:
    await carry_out(planned(f"```json\n{json.dumps(GOOD)}\n```"))


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("Here is my plan.", "is not JSON"),
        ({"steps": []}, "/steps"),
        ({"steps": [tool_step("a", arguments={"x": {"$from": "b"}})]}, 'there is no step \\"b\\"'),
        ({"steps": [tool_step("a", tool="ecko")]}, 'did you mean \\"echo\\"'),
        ({"steps": [tool_step("a"), tool_step("b")]}, "at most"),
    ],
    ids=["text", "no steps", "reference", "tool", "policy"],
)
async def test_what_is_wrong_with_a_plan_is_explained_and_the_next_one_taken(bad: Any, told: str) -> None:
    run = planned(bad, GOOD, policy=PlanPolicy(max_steps=1))
    result = await carry_out(run)
    assert json.loads(result.plan_trace_json)["planning_attempts"] == 2
    said, explained = run.inferences["plan-2"].messages[-2:]
    assert said.text == (bad if isinstance(bad, str) else json.dumps(bad))
    assert told.replace("at most", "there may be 1 steps") in explained.text


async def test_a_model_that_makes_no_plan_ends_the_run_with_the_last_fault() -> None:
    run = planned("no", "no", {"steps": []}, GOOD)
    assert (await failure_of(run)).code is Code.CONSTRAINT_SCHEMA_INVALID
    assert len(run.inferences) == MAX_ATTEMPTS
    assert run.entered == [State.PLAN]
    assert json.loads(run.kept_trace)["planning_attempts"] == MAX_ATTEMPTS


async def test_a_model_that_does_not_answer_ends_the_run() -> None:
    assert (await failure_of(planned(failed(Code.INFERENCE_ENGINE_ERROR, "gone")))).code is Code.INFERENCE_ENGINE_ERROR


async def test_a_model_s_plan_is_bound_by_the_policy_as_another_s_is() -> None:
    policy = PlanPolicy(allowed_step_kinds=frozenset({"tool"}))
    run = planned(*[{"steps": [infer_step("a")]}] * MAX_ATTEMPTS, policy=policy)
    assert (await failure_of(run)).code is Code.VALIDATION_RULE_FAILED


def valid(schema: dict[str, Any], *steps: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(schema).is_valid({"steps": list(steps)})


def test_the_schema_takes_what_is_read_and_names_the_tools_and_kinds_there_are() -> None:
    schema = plan_schema(PlanPolicy(max_steps=2), ["echo"])
    each = {"name": "m", "kind": "map", "over": [1], "do": {"kind": "tool", "tool": "echo"}}
    check = {"name": "v", "kind": "validate", "of": {"$from": "m"}, "schema": {}}
    for step in (tool_step("a"), infer_step("b"), infer_step("c", ["x", {"$from": "m"}], output={"schema": {}}), each):
        assert valid(schema, step), step
    assert valid(schema, each, check)
    parse_plan(json.dumps({"steps": [each, check]}))
    assert not valid(schema, tool_step("a", tool="other"))
    assert not valid(schema, {**each, "do": {"kind": "tool", "tool": "other"}})
    assert not valid(schema, tool_step("a"), tool_step("b"), tool_step("c"))
    assert not valid(schema, tool_step("a", surprise=1))
    few = plan_schema(PlanPolicy(allowed_step_kinds=frozenset({"tool", "map"})), ["echo"])
    assert valid(few, each)
    assert not valid(few, infer_step("b"))
    assert not valid(few, {**each, "do": {"kind": "infer", "prompt": "x"}})
    assert not valid(plan_schema(PlanPolicy(), []), tool_step("a"))


def test_tools_whose_descriptions_have_no_end_are_told_by_name_alone() -> None:
    tools = [
        OfferedTool(name=f"t{number}", description="d" * 100_000, parameters={"x": "y" * 100_000})
        for number in range(500)
    ]
    text = planning_instructions(PlanPolicy(), tools, None)
    assert len(text) < MAX_TOOLS_CHARS + 20_000
    assert '{"tool":"t499"}' in text


def test_what_the_prompt_shows_is_a_plan() -> None:
    text = planning_instructions(PlanPolicy(), [], None)
    shown = []
    for start in range(len(text)):
        if text.startswith('{"name"', start):
            # Examples are wrapped; a line's end is white space of JSON.
            value, _ = json.JSONDecoder().raw_decode(text[start:])
            shown.append(value)
    assert {each["kind"] for each in shown} == {"tool", "infer", "map", "validate"}
    try:
        parse_plan(json.dumps({"steps": shown}))
    except RunFailedError as exc:
        raise AssertionError(exc.error.message) from exc
