"""Plans that nobody should have sent: each is refused by type, before any of its steps begins."""

from __future__ import annotations

import graphlib
import itertools
import json
import tracemalloc
from typing import Any

import pytest
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import RunFailedError
from fumehood_server.orchestration.plans.graph import find_cycle
from fumehood_server.orchestration.plans.parsing import (
    MAX_PLAN_CHARS,
    MAX_PLAN_VALUES,
    _count_values,
    parse_plan,
)
from fumehood_server.orchestration.plans.policy import check_plan
from fumehood_server.orchestration.plans.references import find_value, references_in
from fumehood_server.orchestration.plans.rendering import Renderer
from fumehood_server.orchestration.plans.steps import MAX_STEPS
from fumehood_server.orchestration.request import PlanPolicy
from fumehood_server.validation.strict_json import measure
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.orchestration.plans.fake import failure_of, infer_step, run_of, tool_step

MAP = {"name": "m", "kind": "map", "over": [1], "do": {"kind": "tool", "tool": "echo"}}
CHECK = {"name": "v", "kind": "validate", "of": {"$from": "m"}, "schema": {}}


def refusal(plan: Any) -> CallError:
    with pytest.raises(RunFailedError) as caught:
        parse_plan(plan if isinstance(plan, str) else json.dumps(plan))
    error = caught.value.error
    assert error.details["reason"] == "plan_invalid"
    assert len(json.dumps(error.details)) < 32_000
    return error


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_a_plan_of_too_many_values_is_refused_before_anything_is_made_of_them() -> None:
    text = '{"steps": [' + "[]," * 80_000 + "[]]}"
    tracemalloc.start()
    try:
        found = refusal(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "more than" in json.dumps(found.details)
    assert peak < 8 * len(text)
    prose = ", [not] {values}" * 10_000
    assert len(parse_plan(json.dumps({"steps": [tool_step("a", arguments={"x": prose, 'q"\\': ","})]})).steps) == 1


@given(
    st.recursive(
        st.none() | st.text(st.sampled_from('a,[]{}"\\ '), max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
        max_leaves=30,
    ),
    st.sampled_from([None, 1]),
)
def test_values_are_counted_as_they_are_read(value: object, indent: int | None) -> None:
    text = json.dumps({"steps": [value, "," * MAX_PLAN_VALUES]}, indent=indent)
    assert _count_values(text) == measure(json.loads(text)).values


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ("nonsense", "not JSON"),
        ('{"steps": [NaN]}', "not JSON"),
        ('{"steps": [], "steps": []}', "twice"),
        ('{"steps": ["\\ud800"]}', ""),
        (json.dumps({"steps": [tool_step("a", arguments={"x": deep(80)})]}), "deeper"),
        ("[" * 100_000, ""),
        ('{"steps": ' + "9" * 5000 + "}", ""),
        (" " * (MAX_PLAN_CHARS + 1), "longer"),
        (json.dumps({"steps": [tool_step("a", arguments={"x": "y" * MAX_PLAN_CHARS})]}), "longer"),
    ],
    ids=["empty", "text", "NaN", "twice", "surrogate", "deep", "deeper", "huge number", "long", "huge text"],
)
def test_what_is_no_json_that_is_taken_is_refused(text: str, word: str) -> None:
    error = refusal(text)
    assert error.code is Code.CONSTRAINT_JSON_INVALID
    assert word in error.message


@pytest.mark.parametrize(
    ("steps", "pointer"),
    [
        ([], "/steps"),
        ("steps", "/steps"),
        ([{}], "/steps/0"),
        ([{"name": "a", "kind": "shell"}], "/steps/0"),
        ([tool_step("A")], "/steps/0/name"),
        ([tool_step("")], "/steps/0/name"),
        ([tool_step("x" * 33)], "/steps/0/name"),
        ([tool_step("a\n")], "/steps/0/name"),
        ([tool_step(7)], "/steps/0/name"),  # type: ignore[arg-type] # as it may come
        ([tool_step("a", surprise=1)], "/steps/0/surprise"),
        ([tool_step("a", tool="")], "/steps/0/tool"),
        ([tool_step("a", arguments=[])], "/steps/0/arguments"),
        ([tool_step("a", retries=6)], "/steps/0/retries"),
        ([tool_step("a", retries=-1)], "/steps/0/retries"),
        ([tool_step("a", retries="1")], "/steps/0/retries"),
        ([tool_step("a", retries=True)], "/steps/0/retries"),
        ([tool_step("a", timeout_s=0)], "/steps/0/timeout_s"),
        ([tool_step("a", timeout_s=1e9)], "/steps/0/timeout_s"),
        ([tool_step("a", on_failure="ignore")], "/steps/0/on_failure"),
        ([infer_step("a", prompt=[])], "/steps/0/prompt"),
        ([infer_step("a", prompt=["x"] * 65)], "/steps/0/prompt"),
        ([infer_step("a", prompt=["x", {"y": 1}])], "/steps/0"),
        ([infer_step("a", prompt=["x", 7])], "/steps/0/prompt/1"),
        ([infer_step("a", prompt="x" * 65_537)], "/steps/0/prompt/0"),
        ([infer_step("a", output={})], "/steps/0/output"),
        ([{"name": "v", "kind": "validate", "of": {}, "schema": {}}], "/steps/0"),
        ([{"name": "v", "kind": "validate", "of": {"$item": ""}, "schema": {}}], "/steps/0"),
        ([MAP, {"name": "v", "kind": "validate", "of": {"$from": "m"}}], "/steps/1"),
        ([MAP, {**CHECK, "retries": 1}], "/steps/1/retries"),
        ([{**MAP, "over": {"x": 1}}], "/steps/0"),
        ([{**MAP, "over": [{"$item": ""}]}], "/steps/0"),
        ([{**MAP, "do": MAP}], "/steps/0/do"),
        ([{**MAP, "do": {"kind": "tool", "tool": "t", "name": "n"}}], "/steps/0/do/name"),
        ([tool_step("a", arguments={"x": {"$item": ""}})], "/steps/0"),
        ([tool_step("a", arguments={"x": {"$from": "b"}})], "/steps/0"),
        ([tool_step("a", arguments={"x": {"$from": 7}})], "/steps/0"),
        ([tool_step("a"), tool_step("b", arguments={"x": {"$from": "a", "pointer": "n"}})], "/steps/1"),
        ([tool_step("a"), tool_step("b", arguments={"x": {"$from": "a", "pointer": "/" * 600}})], "/steps/1"),
        ([tool_step("a"), tool_step("b", arguments={"x": {"$from": "a", "other": 1}})], "/steps/1"),
        ([tool_step("a", after=["b"])], "/steps/0"),
        ([tool_step("a"), tool_step("a")], "/steps/1/name"),
        ([tool_step("a", after=["a"])], "/steps"),
        ([tool_step("a", after=["b"]), tool_step("b", arguments={"x": {"$from": "a"}})], "/steps"),
        ([tool_step(f"s{number}") for number in range(MAX_STEPS + 1)], "/steps"),
        ([0] * 4_000, "/steps/0"),
    ],
)  # fmt: skip
def test_what_has_another_shape_is_refused_with_the_place(steps: Any, pointer: str) -> None:
    error = refusal({"steps": steps})
    assert error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert pointer in [each["pointer"] for each in error.details["faults"]], error.details


def test_ten_thousand_steps_are_refused() -> None:
    plan = json.dumps({"steps": [{"name": f"s{n}"} for n in range(10_000)]}, separators=(",", ":"))
    assert len(plan) < MAX_PLAN_CHARS
    assert "values" in refusal(plan).message
    whole = [tool_step(f"s{number}") for number in range(10_000)]
    assert refusal({"steps": whole}).code is Code.CONSTRAINT_JSON_INVALID


def test_as_many_steps_as_there_may_be_are_taken() -> None:
    steps = [
        tool_step(f"s{number}", after=[f"s{before}" for before in range(number)][-8:]) for number in range(MAX_STEPS)
    ]
    assert len(parse_plan(json.dumps({"steps": steps})).steps) == MAX_STEPS


def test_a_chain_of_checks_without_end_is_followed_no_further_than_it_may_be() -> None:
    checks: list[dict[str, Any]] = [
        {"name": f"v{number}", "kind": "validate", "of": {"$from": f"v{number - 1}"}, "schema": {}}
        for number in range(1, 100)
    ]
    first = infer_step("v0")
    parse_plan(json.dumps({"steps": [first, *checks]}))
    checks[-1]["retries"] = 1
    assert "/steps/99/retries" in refusal({"steps": [first, *checks]}).message
    # Checks that wait for one another are a cycle, whoever asks for what they check.
    circle = [{**checks[0], "of": {"$from": "v2"}, "retries": 1}, checks[1]]
    assert "after" in refusal({"steps": circle}).message


@pytest.mark.parametrize(
    "output", [{"$from": "b"}, {"x": [{"$item": ""}]}, {"$from": "a", "x": 1}], ids=["nowhere", "item", "member"]
)
def test_an_output_that_refers_to_nothing_is_refused(output: Any) -> None:
    assert "/output" in refusal({"steps": [tool_step("a")], "output": output}).message


@pytest.mark.parametrize(
    ("policy", "allowed", "forbidden", "pointer"),
    [
        (PlanPolicy(max_steps=1), [tool_step("a")], [tool_step("a"), tool_step("b")], "/steps"),
        (
            PlanPolicy(allowed_step_kinds=frozenset({"tool"})),
            [tool_step("a")],
            [tool_step("a"), infer_step("b")],
            "/steps/1/kind",
        ),
        (
            PlanPolicy(allowed_step_kinds=frozenset({"map", "tool"})),
            [MAP],
            [{**MAP, "do": {"kind": "infer", "prompt": "x"}}],
            "/steps/0/do/kind",
        ),
        (
            PlanPolicy(require_linear=True),
            [tool_step("a"), tool_step("b", arguments={"x": {"$from": "a"}}), tool_step("c", after=["b"])],
            [tool_step("a"), tool_step("b", after=["a"]), tool_step("c", after=["a"])],
            "/steps/2",
        ),
    ],
    ids=["max_steps", "kinds", "kinds in a map", "linear"],
)
def test_a_policy_lets_one_plan_through_and_refuses_the_other(
    policy: PlanPolicy, allowed: Any, forbidden: Any, pointer: str
) -> None:
    check_plan(parse_plan(json.dumps({"steps": allowed})), policy, {"echo"})
    with pytest.raises(RunFailedError) as caught:
        check_plan(parse_plan(json.dumps({"steps": forbidden})), policy, {"echo"})
    error = caught.value.error
    assert (error.code, error.details["reason"]) == (Code.VALIDATION_RULE_FAILED, "plan_policy")
    assert [each["pointer"] for each in error.details["faults"]] == [pointer]


async def test_a_tool_that_the_run_has_not_is_found_before_any_step_begins() -> None:
    for last in (tool_step("b", tool="ecko", after=["a"]), {**MAP, "do": {"kind": "tool", "tool": "ecko"}}):
        run = run_of([tool_step("a"), last], tools_by_name={"echo": lambda given: given})
        error = await failure_of(run)
        assert error.code is Code.TOOL_NOT_FOUND
        assert 'did you mean "echo"' in error.message
        assert run.calls == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$from", "$item", "$value", "pointer", "default", "b/~"]), inner, max_size=3)
    ),
    max_leaves=20,
)
NAMES = st.sampled_from(["a", "b", "c", "d-1"])
STEPS = st.fixed_dictionaries(
    {"name": NAMES | JSON, "kind": st.sampled_from(["tool", "infer", "validate", "map"]) | JSON},
    optional={
        "tool": st.just("echo") | JSON,
        "arguments": JSON,
        "prompt": JSON,
        "of": st.builds(lambda name: {"$from": name}, NAMES) | JSON,
        "schema": JSON,
        "rules": JSON,
        "over": JSON,
        "do": st.just({"kind": "tool", "tool": "echo"}) | JSON,
        "after": st.lists(NAMES, max_size=3) | JSON,
        "retries": st.integers(-1, 7) | JSON,
        "output": JSON,
    },
)


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({"steps": st.lists(STEPS, max_size=5) | JSON}, optional={"output": JSON}) | JSON)
def test_any_json_is_a_plan_that_holds_together_or_is_refused_by_type(document: Any) -> None:
    try:
        plan = parse_plan(json.dumps(document))
    except RunFailedError as exc:
        assert exc.error.code in (Code.CONSTRAINT_JSON_INVALID, Code.CONSTRAINT_SCHEMA_INVALID)  # noqa: PT017 - or none
        assert exc.error.details["faults"]  # noqa: PT017
        return
    names = {step.name for step in plan.steps}
    assert len(names) == len(plan.steps)
    assert all(step.dependencies <= names for step in plan.steps)
    list(graphlib.TopologicalSorter({step.name: step.dependencies for step in plan.steps}).static_order())
    assert {each.step for each in references_in(plan.output_template)} <= names


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_any_text_is_a_plan_or_is_refused_by_type(text: str) -> None:
    assert refusal(text).message


@given(st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from("abcdef"))))
def test_a_cycle_is_found_where_there_is_one_and_is_one(after: dict[str, frozenset[str]]) -> None:
    known = {name: names & after.keys() for name, names in after.items()}
    found = find_cycle(after)
    try:
        list(graphlib.TopologicalSorter(known).static_order())
    except graphlib.CycleError:
        assert found[0] == found[-1]
        assert all(two in known[one] for one, two in itertools.pairwise(found))
    else:
        assert found == []


@given(JSON, st.data())
def test_a_pointer_leads_where_its_path_does(document: Any, data: st.DataObject) -> None:
    value, pointer = document, ""
    while isinstance(value, dict | list) and value and data.draw(st.booleans()):
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(keys))
        pointer += "/" + str(key).replace("~", "~0").replace("/", "~1")
        value = value[key]
    assert find_value(document, pointer) == (True, value)
    assert find_value(document, pointer + "/nowhere") == (False, None)


@pytest.mark.parametrize("pointer", ["/00", "/-", "/3", "/-1", "/1e0", "/\u0663", "/" + "9" * 400, "/0/0"])
def test_what_is_no_index_of_a_list_leads_nowhere(pointer: str) -> None:
    assert find_value([1, 2, 3], pointer) == (False, None)
    assert find_value([1, 2, 3], "/2") == (True, 3)


@given(JSON)
def test_json_under_value_comes_out_as_it_went_in(document: Any) -> None:
    assert json.loads(Renderer({}).json_text({"x": {"$value": document}})) == {"x": document}


async def test_outputs_together_are_bounded_and_a_map_s_items_count_as_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fumehood_server.orchestration.plans.outputs.MAX_KEPT_CHARS", 1000)
    each = {**MAP, "over": [0] * 9}
    run = run_of([each], tools_by_name={"echo": lambda _: "x" * 298})
    error = await failure_of(run)
    assert (error.code, error.details["limit"]) == (Code.TOOL_RESOURCE_EXHAUSTED, "plan_values")
    assert len(run.calls) < 9
