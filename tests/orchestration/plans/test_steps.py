"""What each kind of step does, and what becomes of outputs on their way to other steps."""

from __future__ import annotations

import json
from typing import Any

from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.plans.mapping import MAX_ITEMS
from fumehood_server.orchestration.plans.rendering import MAX_RENDERED_CHARS

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

NUMBER = {"schema": {"type": "integer"}}


def echo(arguments: Any) -> Any:
    return arguments


async def test_a_tool_step_calls_its_tool_with_the_arguments_and_its_structured_result_is_the_output() -> None:
    run = run_of([tool_step("one", arguments={"a": [1, {"b": 2**70}]})], tools_by_name={"echo": echo})
    result = await carry_out(run)
    assert run.calls == {"one-0-1": ("echo", {"a": [1, {"b": 2**70}]})}
    assert json.loads(result.output_json) == {"a": [1, {"b": 2**70}]}
    assert result.content == ""
    assert run.entered == [State.PLAN, State.PREPARE, State.EXECUTE, State.VALIDATE]


async def test_a_result_of_text_alone_is_text_and_the_run_says_it() -> None:
    run = run_of([tool_step("one")], tools_by_name={"echo": lambda _: Text('{"looks": "like JSON"}')})
    result = await carry_out(run)
    assert (result.content, result.output_json) == ('{"looks": "like JSON"}', "")
    assert [each.text for each in result.said] == [result.content]


async def test_an_infer_step_asks_with_the_conversation_and_what_its_prompt_refers_to() -> None:
    steps = [
        tool_step("find", arguments={"n": [1, 2]}),
        tool_step("read", tool="text"),
        infer_step("sum", ["Sum up ", {"$from": "find", "pointer": "/n"}, " and ", {"$from": "read"}]),
    ]
    run = run_of(
        steps, tools_by_name={"echo": echo, "text": lambda _: Text("plain")}, answers={"sum-0-1": "It is three."}
    )
    assert (await carry_out(run)).content == "It is three."
    asked = run.inferences["sum-0-1"]
    assert [each.text for each in asked.messages] == ["What is in the notes?", "Sum up [1,2] and plain"]
    assert asked.tools == ()


async def test_an_infer_step_that_does_not_see_the_conversation_is_asked_its_prompt_alone() -> None:
    run = run_of([infer_step("sum", sees_conversation=False)], answers={"sum-0-1": "Yes."})
    await carry_out(run)
    assert [each.text for each in run.inferences["sum-0-1"].messages] == ["Say it."]


async def test_an_infer_step_with_a_schema_gives_json_to_what_comes_after() -> None:
    steps = [
        infer_step("count", output={"schema": {"type": "object", "required": ["n"]}}),
        tool_step("use", arguments={"got": {"$from": "count", "pointer": "/n"}}),
    ]

    def run(*, constrains_schema: bool) -> FakeRun:
        answers = {"count-0-1": '{"n": 7}'}
        return run_of(steps, tools_by_name={"echo": echo}, answers=answers, constrains_schema=constrains_schema)

    constrained, told = run(constrains_schema=True), run(constrains_schema=False)
    assert json.loads((await carry_out(constrained)).output_json) == {"got": 7}
    assert json.loads((await carry_out(told)).output_json) == {"got": 7}
    assert constrained.inferences["count-0-1"].schema == {"type": "object", "required": ["n"]}
    assert told.inferences["count-0-1"].schema is None
    assert told.inferences["count-0-1"].messages[-1].text.startswith("Say it.\n\nAnswer with JSON")


async def test_a_map_calls_its_tool_for_each_item_and_keeps_their_order() -> None:
    step = {
        "name": "each",
        "kind": "map",
        "over": {"$from": "list", "pointer": "/items"},
        "do": {"kind": "tool", "tool": "echo", "arguments": {"at": {"$item": "/id"}, "of": {"$from": "list"}}},
    }
    run = run_of([tool_step("list", arguments={"items": [{"id": 3}, {"id": 1}]}), step], tools_by_name={"echo": echo})
    whole = {"items": [{"id": 3}, {"id": 1}]}
    result = await carry_out(run)
    assert json.loads(result.output_json) == [{"at": 3, "of": whole}, {"at": 1, "of": whole}]
    assert {"each-1-1", "each-2-1"} <= run.calls.keys()
    trace = json.loads(result.plan_trace_json)["steps"][1]
    assert (trace["items"], trace["failed_items"], trace["attempts"]) == (2, 0, 2)


async def test_a_map_asks_the_model_for_each_item() -> None:
    step = {
        "name": "each",
        "kind": "map",
        "over": ["a", "b"],
        "do": {"kind": "infer", "prompt": ["About ", {"$item": ""}]},
    }
    run = run_of([step], answers={"each-1-1": "A", "each-2-1": "B"})
    assert json.loads((await carry_out(run)).output_json) == ["A", "B"]
    assert run.inferences["each-2-1"].messages[-1].text == "About b"


async def test_a_map_over_nothing_comes_to_an_empty_list() -> None:
    step = {"name": "each", "kind": "map", "over": [], "do": {"kind": "tool", "tool": "echo"}}
    assert (await carry_out(run_of([step], tools_by_name={"echo": echo}))).output_json == "[]"


async def test_a_map_goes_over_as_many_items_as_it_may_and_not_over_one_more() -> None:
    def run(count: int) -> FakeRun:
        step = {"name": "each", "kind": "map", "over": [0] * count, "do": {"kind": "tool", "tool": "echo"}}
        return run_of([step], tools_by_name={"echo": echo})

    assert len(json.loads((await carry_out(run(MAX_ITEMS))).output_json)) == MAX_ITEMS
    over = run(MAX_ITEMS + 1)
    assert (await failure_of(over)).code is Code.ORCHESTRATION_STEP_MISMATCH
    assert over.calls == {}


async def test_a_validate_step_lets_through_what_fits_and_reads_text_as_json_under_a_schema() -> None:
    steps = [
        tool_step("get"),
        {"name": "check", "kind": "validate", "of": {"$from": "get"}, **NUMBER},
        tool_step("use", tool="echo", arguments={"n": {"$from": "check"}}),
    ]
    run = run_of(steps, tools_by_name={"echo": lambda given: given or Text("41")})
    assert json.loads((await carry_out(run)).output_json) == {"n": 41}


async def test_a_validate_step_fails_the_plan_over_what_does_not_fit() -> None:
    steps = [
        tool_step("get", arguments={"n": "x"}),
        {"name": "check", "kind": "validate", "of": {"$from": "get", "pointer": "/n"}, **NUMBER},
        tool_step("use", after=["check"]),
    ]
    run = run_of(steps, tools_by_name={"echo": echo})
    error = await failure_of(run)
    assert (error.code, error.details["step"]) == (Code.CONSTRAINT_SCHEMA_INVALID, "check")
    assert states(run.kept_trace) == {"get": "done", "check": "failed", "use": "waiting"}
    assert list(run.calls) == ["get-0-1"]


async def test_a_rule_of_a_validate_step_speaks_of_the_value_and_not_of_its_text() -> None:
    def run(allowed: Any) -> FakeRun:
        rule = {"name": "one of", "one_of": [allowed]}
        check = {"name": "check", "kind": "validate", "of": {"$from": "get", "pointer": "/n"}, "rules": [rule]}
        return run_of([tool_step("get", arguments={"n": "x"}), check], tools_by_name={"echo": echo})

    assert (await carry_out(run("x"))).output_json == '"x"'
    assert (await failure_of(run('"x"'))).code is Code.VALIDATION_RULE_FAILED


async def test_a_model_judges_under_a_name_of_its_own() -> None:
    steps = [infer_step("say"), {"name": "j", "kind": "validate", "of": {"$from": "say"}, "semantic_check": "Polite?"}]
    yes = run_of(steps, answers={"say-0-1": "Please.", "j-0-0-a": '{"answer": "yes"}'})
    assert (await carry_out(yes)).content == "Please."
    assert (await failure_of(run_of(steps, answers={"say-0-1": "Go!", "j-0-0-a": '{"answer": "no"}'}))).code is (
        Code.VALIDATION_SEMANTIC_FAILED
    )


async def test_what_stands_under_value_is_no_reference() -> None:
    run = run_of([tool_step("one", arguments={"a": {"$value": {"$from": "one"}}})], tools_by_name={"echo": echo})
    assert json.loads((await carry_out(run)).output_json) == {"a": {"$from": "one"}}


async def test_the_output_is_made_of_several_steps() -> None:
    steps = [tool_step("a", arguments={"n": 1}), tool_step("b", tool="text")]
    output = {"n": {"$from": "a", "pointer": "/n"}, "said": [{"$from": "b"}], "fixed": True}
    run = run_of(steps, output=output, tools_by_name={"echo": echo, "text": lambda _: Text("b")})
    assert json.loads((await carry_out(run)).output_json) == {"n": 1, "said": ["b"], "fixed": True}


async def test_a_value_that_is_not_there_is_a_mismatch_unless_a_default_stands_in() -> None:
    def run(**default: Any) -> FakeRun:
        reference = {"$from": "a", "pointer": "/no", **default}
        steps = [tool_step("a", arguments={"n": 1}), tool_step("b", arguments={"x": reference}, on_failure="skip")]
        return run_of(steps, tools_by_name={"echo": echo})

    error = await failure_of(run())
    assert (error.code, error.details["step"]) == (Code.ORCHESTRATION_STEP_MISMATCH, "b")
    assert "/no" in error.details["reference"]
    assert json.loads((await carry_out(run(default=[0]))).output_json) == {"x": [0]}


async def test_what_a_step_can_t_take_is_a_mismatch() -> None:
    one = tool_step("a", arguments={"n": 1})
    cases = {
        "no list": [one, {"name": "m", "kind": "map", "over": {"$from": "a"}, "do": {"kind": "tool", "tool": "echo"}}],
        "no object": [one, tool_step("b", arguments={"$from": "a", "pointer": "/n"})],
        "no such item": [
            {
                "name": "m",
                "kind": "map",
                "over": [1],
                "do": {"kind": "tool", "tool": "echo", "arguments": {"x": {"$item": "/y"}}},
            }
        ],
        "part of a text": [
            tool_step("t", tool="text"),
            tool_step("b", arguments={"x": {"$from": "t", "pointer": "/0"}}),
        ],
    }
    found = {}
    for name, steps in cases.items():
        run = run_of(steps, tools_by_name={"echo": echo, "text": lambda _: Text("t")})
        found[name] = (await failure_of(run)).code
    assert set(found.values()) == {Code.ORCHESTRATION_STEP_MISMATCH}, found


async def test_arguments_may_be_a_whole_output_that_is_an_object() -> None:
    run = run_of(
        [tool_step("a", arguments={"n": 1}), tool_step("b", arguments={"$from": "a"})], tools_by_name={"echo": echo}
    )
    assert json.loads((await carry_out(run)).output_json) == {"n": 1}


async def test_references_that_multiply_an_output_are_stopped_at_the_bound() -> None:
    piece = "x" * (MAX_RENDERED_CHARS // 4)

    def run(times: int) -> FakeRun:
        use = tool_step("b", tool="count", arguments={"all": [{"$from": "a"}] * times})
        tools = {"echo": lambda _: Text(piece), "count": lambda given: len(given["all"])}
        return run_of([tool_step("a"), use], tools_by_name=tools)

    assert (await carry_out(run(3))).output_json == "3"
    refused = run(2000)
    error = await failure_of(refused)
    assert (error.code, error.details["limit"]) == (Code.TOOL_RESOURCE_EXHAUSTED, "plan_values")
    assert list(refused.calls) == ["a-0-1"]


async def test_an_error_of_a_tool_that_nothing_recovers_from_is_the_run_s_and_its_trace_is_kept() -> None:
    run = run_of([tool_step("a"), tool_step("b", after=["a"])], tools_by_name={"echo": lambda _: tool_error()})
    error = await failure_of(run)
    assert (error.code, error.details) == (Code.TOOL_EXECUTION_FAILED, {"step": "a"})
    trace = json.loads(run.kept_trace)
    assert trace["steps"][0]["error"] == {"code": "TOOL_EXECUTION_FAILED", "message": "the tool failed"}
    assert (trace["planner_id"], trace["rationale"], trace["step_count"]) == ("request", "since it is so", 2)
    assert trace["created_at"].endswith("Z")
