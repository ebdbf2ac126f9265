"""What a plan goes on after, step by step, and what ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Category, Code
from fumehood_server.orchestration.engines.engine import FinishReason
from fumehood_server.orchestration.failures import failed
from fumehood_server.orchestration.lifecycle import MODE_RULES, State
from fumehood_server.orchestration.plans.actions import LONGEST_DELAY_S
from fumehood_server.orchestration.request import Mode, OutputContract, PlanPolicy

from tests.orchestration.plans.fake import (
    FakeRun,
    Text,
    carry_out,
    failure_of,
    infer_step,
    run_of,
    states,
    tool_error,
    tool_step,
)

OBJECT = {"schema": {"type": "object"}}


def one_after_the_other(*outcomes: Any) -> Any:
    """A tool whose calls end so, in their order."""
    left: Iterator[Any] = iter(outcomes)
    return lambda _arguments: next(left)


async def for_ever() -> str:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nothing ends it but a cancellation")


async def test_a_call_that_may_be_made_again_is_and_its_failure_stays_in_the_trace() -> None:
    step = tool_step("a", retries=2)
    run = run_of([step], tools_by_name={"echo": one_after_the_other(tool_error(retryable=True), "done")})
    result = await carry_out(run)
    assert result.output_json == '"done"'
    assert list(run.calls) == ["a-0-1", "a-0-2"]
    [trace] = json.loads(result.plan_trace_json)["steps"]
    assert (trace["state"], trace["attempts"]) == ("done", 2)
    assert trace["error"]["code"] == "TOOL_EXECUTION_FAILED"


@pytest.mark.parametrize(
    "error",
    [
        tool_error(),
        tool_error(Code.TOOL_OUTCOME_UNKNOWN),
        tool_error(Code.TOOL_QUOTA_EXCEEDED, retryable=True, details={"retry_after_s": LONGEST_DELAY_S + 1}),
    ],
    ids=["not retryable", "unknown outcome", "too long to wait"],
)
async def test_a_call_that_may_not_be_made_again_now_is_not(error: CallError) -> None:
    run = run_of([tool_step("a", retries=5)], tools_by_name={"echo": lambda _: error})
    assert (await failure_of(run)).code is error.code
    assert list(run.calls) == ["a-0-1"]


async def test_a_call_is_made_again_as_often_as_the_step_says_and_no_more() -> None:
    run = run_of([tool_step("a", retries=1)], tools_by_name={"echo": lambda _: tool_error(retryable=True)})
    await failure_of(run)
    assert list(run.calls) == ["a-0-1", "a-0-2"]


async def test_a_refusal_of_the_run_itself_fails_the_step() -> None:
    refusal = failed(Code.TOOL_DENIED, "not in this run")
    assert (
        await failure_of(run_of([tool_step("a")], tools_by_name={"echo": lambda _: refusal}))
    ).code is Code.TOOL_DENIED


async def test_a_model_is_told_what_is_wrong_with_its_json_and_asked_again() -> None:
    run = run_of([infer_step("a", retries=2, output=OBJECT)], answers={"a-0-1": "{oops", "a-0-2": '{"n": 1}'})
    assert json.loads((await carry_out(run)).output_json) == {"n": 1}
    again = run.inferences["a-0-2"].messages
    assert again[:2] == run.inferences["a-0-1"].messages
    assert again[2].text == "{oops"
    assert "is not JSON" in again[3].text


async def test_a_model_that_never_gets_it_right_fails_with_the_last_fault() -> None:
    run = run_of([infer_step("a", retries=1, output=OBJECT)], answers={"a-0-1": "{oops", "a-0-2": "[]"})
    assert (await failure_of(run)).code is Code.CONSTRAINT_SCHEMA_INVALID
    assert list(run.inferences) == ["a-0-1", "a-0-2"]


async def test_a_validate_step_has_the_model_asked_again_and_gives_what_was_right_then() -> None:
    steps = [
        infer_step("say", output=OBJECT),
        {"name": "check", "kind": "validate", "of": {"$from": "say"}, "retries": 2, "schema": {"required": ["n"]}},
        tool_step("use", arguments={"checked": {"$from": "check"}, "first": {"$from": "say"}}),
    ]
    answers = {"say-0-1": "{}", "check-0-1": "[]", "check-0-2": '{"n": 1}'}
    run = run_of(steps, tools_by_name={"echo": lambda given: given}, answers=answers)
    # The first answer stays the infer step's, so that who refers to it gets the same whenever the run goes on again.
    assert json.loads((await carry_out(run)).output_json) == {"checked": {"n": 1}, "first": {}}
    assert run.inferences["check-0-1"].messages[0] == run.inferences["say-0-1"].messages[0]
    assert run.inferences["check-0-2"].messages[-2].text == "[]"


async def test_a_validate_step_without_retries_asks_nobody() -> None:
    steps = [infer_step("say"), {"name": "check", "kind": "validate", "of": {"$from": "say"}, **OBJECT}]
    run = run_of(steps, answers={"say-0-1": "text"})
    assert (await failure_of(run)).code is Code.CONSTRAINT_JSON_INVALID
    assert list(run.inferences) == ["say-0-1"]


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (tool_step("a"), tool_error()),
        (tool_step("a"), tool_error(Code.TOOL_OUTCOME_UNKNOWN)),
        (infer_step("a", output=OBJECT), "no JSON"),
        (infer_step("a", output={"rules": [{"name": "yes", "one_of": ["yes"]}]}), "no"),
    ],
    ids=["tool", "unknown outcome", "constraint", "validation"],
)
async def test_a_plan_goes_on_without_a_step_that_it_may_skip_and_not_without_another(step: Any, answer: Any) -> None:
    def run(on_failure: str) -> FakeRun:
        steps = [{**step, "on_failure": on_failure}, tool_step("b", tool="fine", after=["a"])]
        tools = {"echo": lambda _: answer, "fine": lambda _: "fine"}
        return run_of(steps, tools_by_name=tools, answers={"a-0-1": answer})

    skipped = await carry_out(run("skip"))
    assert skipped.output_json == '"fine"'
    assert states(skipped.plan_trace_json) == {"a": "skipped", "b": "done"}
    assert (await failure_of(run("fail"))).code.category in MODE_RULES[Mode.PLAN].recovers


@pytest.mark.parametrize(
    "code",
    [
        code
        for code in Code
        if code.category not in MODE_RULES[Mode.PLAN].recovers and code.category is not Category.TOOL
    ],
)
async def test_what_a_plan_does_not_recover_from_ends_it_even_where_the_step_may_be_skipped(code: Code) -> None:
    run = run_of([infer_step("a", on_failure="skip", retries=2)], answers={"a-0-1": failed(code, "it is so")})
    assert (await failure_of(run)).code is code
    assert list(run.inferences) == ["a-0-1"]


async def test_what_refers_to_a_skipped_step_is_skipped_too_unless_a_default_stands_in() -> None:
    steps = [
        tool_step("a", on_failure="skip"),
        tool_step("b", tool="fine", arguments={"x": {"$from": "a"}}),
        tool_step("c", tool="fine", arguments={"x": {"$from": "a", "default": "none"}}),
        tool_step("d", tool="fine", arguments={"x": {"$from": "b", "default": "none"}}),
    ]
    run = run_of(
        steps,
        output=[{"$from": "c"}, {"$from": "d"}],
        tools_by_name={"echo": lambda _: tool_error(), "fine": lambda given: given["x"]},
    )
    result = await carry_out(run)
    assert json.loads(result.output_json) == ["none", "none"]
    assert states(result.plan_trace_json) == {"a": "skipped", "b": "skipped", "c": "done", "d": "done"}


async def test_an_output_of_a_skipped_step_fails_with_that_step_s_failure() -> None:
    steps = [tool_step("a", on_failure="skip"), tool_step("b", tool="fine", arguments={"x": {"$from": "a"}})]
    run = run_of(steps, tools_by_name={"echo": lambda _: tool_error(), "fine": lambda _: 1})
    error = await failure_of(run)
    assert (error.code, error.details["step"]) == (Code.TOOL_EXECUTION_FAILED, "b")
    assert run.entered[-1] is State.EXECUTE


async def test_a_map_leaves_the_place_of_an_item_that_failed_empty_where_it_may() -> None:
    def run(on_item_failure: str) -> FakeRun:
        step = {
            "name": "m",
            "kind": "map",
            "over": [1, 2, 3],
            "on_item_failure": on_item_failure,
            "do": {"kind": "tool", "tool": "odd", "arguments": {"n": {"$item": ""}}},
        }
        return run_of([step], tools_by_name={"odd": lambda given: given["n"] if given["n"] % 2 else tool_error()})

    result = await carry_out(run("skip"))
    assert json.loads(result.output_json) == [1, None, 3]
    assert json.loads(result.plan_trace_json)["steps"][0]["failed_items"] == 1
    failing = run("fail")
    assert (await failure_of(failing)).code is Code.TOOL_EXECUTION_FAILED
    assert states(failing.kept_trace) == {"m": "failed"}


async def test_items_of_a_map_have_their_own_attempts() -> None:
    step = {
        "name": "m",
        "kind": "map",
        "over": [1, 2],
        "retries": 1,
        "do": {"kind": "infer", "prompt": [{"$item": ""}], "output": OBJECT},
    }
    run = run_of([step], answers={"m-1-1": "{}", "m-2-1": "no", "m-2-2": "{}"})
    assert json.loads((await carry_out(run)).output_json) == [{}, {}]


async def test_a_step_s_time_is_over_and_the_plan_goes_on_where_it_may() -> None:
    def run(**fields: Any) -> FakeRun:
        steps = [tool_step("slow", tool="slow", **fields), tool_step("b", after=["slow"])]
        return run_of(steps, tools_by_name={"slow": lambda _: for_ever(), "echo": lambda _: "b"})

    skipping = run(timeout_s=0.3, on_failure="skip", retries=3)
    assert (await carry_out(skipping)).output_json == '"b"'
    assert skipping.cancelled == ["slow-0-1"]
    error = await failure_of(run(timeout_s=0.3))
    assert (error.code, error.retryable, error.details["step"]) == (Code.TOOL_TIMEOUT, False, "slow")


async def test_the_policy_bounds_each_step_s_time_and_a_longer_one_of_the_step_does_not_help() -> None:
    policy = PlanPolicy(step_timeout_s=0.3)
    run = run_of([infer_step("a", timeout_s=3600, on_failure="skip")], policy=policy, answers={"a-0-1": for_ever})
    error = await failure_of(run)
    assert (error.code, error.details["timeout_s"]) == (Code.INFERENCE_MODEL_UNAVAILABLE, 0.3)
    each = {"name": "m", "kind": "map", "over": [1, 2], "do": {"kind": "tool", "tool": "slow"}}
    over = run_of([each], policy=policy, tools_by_name={"slow": lambda _: for_ever()})
    assert (await failure_of(over)).code is Code.TOOL_TIMEOUT
    assert sorted(over.cancelled) == ["m-1-1", "m-2-1"]


async def test_after_a_failure_nothing_begins_and_what_is_under_way_ends() -> None:
    fail_now = asyncio.Event()

    async def last() -> str:
        fail_now.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return "written"

    async def failing() -> CallError:
        await fail_now.wait()
        return tool_error()

    steps = [tool_step("w", tool="write"), tool_step("f"), tool_step("after-w", after=["w"])]
    run = run_of(steps, tools_by_name={"write": lambda _: last(), "echo": lambda _: failing()})
    assert (await failure_of(run)).details["step"] == "f"
    assert run.ended == ["f-0-1", "w-0-1"]
    assert run.cancelled == []
    assert states(run.kept_trace) == {"w": "done", "f": "failed", "after-w": "waiting"}


async def test_of_several_failures_the_first_in_the_plan_is_told() -> None:
    async def later() -> CallError:
        for _ in range(20):
            await asyncio.sleep(0)
        return tool_error(Code.TOOL_DENIED)

    run = run_of(
        [tool_step("a", tool="later"), tool_step("b")],
        tools_by_name={"later": lambda _: later(), "echo": lambda _: tool_error()},
    )
    assert (await failure_of(run)).details["step"] == "a"


async def test_the_output_is_held_against_the_request_s_contract_and_mended_by_its_step() -> None:
    contract = OutputContract(schema={"required": ["n"]}, strict=True)
    steps = [infer_step("a", output=OBJECT, retries=2)]
    run = run_of(steps, contract=contract, answers={"a-0-1": "{}", "output-1": "[]", "output-2": '{"n": 2}'})
    assert json.loads((await carry_out(run)).output_json) == {"n": 2}
    assert run.entered[2:] == [State.EXECUTE, State.VALIDATE] * 3
    assert run.lifecycle.attempt == 3


async def test_a_strict_contract_fails_the_run_and_another_lets_the_output_through_with_its_fault() -> None:
    def run(*, strict: bool) -> FakeRun:
        contract = OutputContract(schema={"type": "integer"}, strict=strict)
        return run_of([tool_step("a")], contract=contract, tools_by_name={"echo": lambda _: {"n": 1}})

    assert (await failure_of(run(strict=True))).code is Code.CONSTRAINT_SCHEMA_INVALID
    lenient = await carry_out(run(strict=False))
    assert json.loads(lenient.output_json) == {"n": 1}
    assert lenient.error is not None
    assert lenient.error.code is Code.CONSTRAINT_SCHEMA_INVALID


async def test_text_under_the_request_s_schema_becomes_json() -> None:
    run = run_of(
        [tool_step("a")],
        contract=OutputContract(schema={"type": "object"}),
        tools_by_name={"echo": lambda _: Text("{}")},
    )
    assert (await carry_out(run)).output_json == "{}"


async def test_an_answer_without_a_whole_text_is_malformed_and_one_that_was_cut_off_is_told_as_such() -> None:
    empty = run_of([infer_step("a")], answers={"a-0-1": ""})
    assert (await failure_of(empty)).code is Code.INFERENCE_MALFORMED_RESPONSE
    withheld = run_of([infer_step("a")], answers={"a-0-1": "I"}, finish_reasons={"a-0-1": FinishReason.FILTERED})
    assert (await failure_of(withheld)).code is Code.INFERENCE_MALFORMED_RESPONSE
    cut = run_of(
        [infer_step("a", output=OBJECT)], answers={"a-0-1": '{"n'}, finish_reasons={"a-0-1": FinishReason.LENGTH}
    )
    assert "it ends in the middle" in (await failure_of(cut)).message


async def test_half_of_a_surrogate_pair_does_not_get_into_arguments() -> None:
    steps = [infer_step("a"), tool_step("b", arguments={"x": {"$from": "a"}})]
    run = run_of(steps, answers={"a-0-1": "x\ud800"}, tools_by_name={"echo": lambda given: given})
    assert json.loads((await carry_out(run)).output_json) == {"x": "x?"}


async def test_a_schema_that_can_t_be_used_is_found_before_a_tool_is_called() -> None:
    wrong = {"schema": {"type": 7}}
    for last in (
        infer_step("b", output=wrong),
        {"name": "b", "kind": "validate", "of": {"$from": "a"}, **wrong},
        {"name": "b", "kind": "map", "over": [1], "do": {"kind": "infer", "prompt": "x", "output": wrong}},
    ):
        run = run_of([tool_step("a"), last], tools_by_name={"echo": lambda given: given})
        assert (await failure_of(run)).code is Code.CONFIG_SCHEMA_REQUIRED
        assert (run.calls, run.entered[-1]) == ({}, State.PREPARE)


@pytest.mark.parametrize("in_map", [False, True])
async def test_what_is_no_failure_of_a_step_comes_out_as_it_is_once_what_is_under_way_has_ended(in_map: bool) -> None:
    ours_now = asyncio.Event()

    async def writing() -> str:
        ours_now.set()
        for _ in range(20):
            await asyncio.sleep(0)
        return "written"

    async def ours() -> Exception:
        await ours_now.wait()
        return KeyError("ours")

    def ended_by(arguments: Any) -> Any:
        return ours() if arguments["n"] else writing()

    do = {"kind": "tool", "tool": "both", "arguments": {"n": {"$item": ""}}}
    steps: list[Any] = [tool_step(f"s{n}", tool="both", arguments={"n": n}) for n in (0, 1)]
    run = run_of(
        [{"name": "m", "kind": "map", "over": [0, 1], "do": do, "on_failure": "skip"}] if in_map else steps,
        tools_by_name={"both": ended_by},
    )
    with pytest.raises(KeyError, match="ours"):
        await carry_out(run)
    assert len(run.ended) == 1
    assert run.cancelled == []
    assert "running" in states(run.kept_trace).values()
