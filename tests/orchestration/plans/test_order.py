"""Which step begins when, what runs beside what, and what a cancellation leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fumehood_server.model.taxonomy import Code
from fumehood_server.orchestration.failures import failed
from fumehood_server.orchestration.lifecycle import State
from fumehood_server.orchestration.modes.plan import run_plan
from fumehood_server.orchestration.plans.contract_checks import ContractChecks
from fumehood_server.orchestration.plans.executor import MAX_AT_ONCE
from fumehood_server.orchestration.request import OutputContract, PlanPolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.orchestration.plans.fake import (
    FakeRun,
    carry_out,
    failure_of,
    infer_step,
    run_of,
    states,
    tool_step,
)
from tests.orchestration.plans.test_recovery import for_ever


def echo(arguments: Any) -> Any:
    return arguments


async def several_turns() -> str:
    for _ in range(5):
        await asyncio.sleep(0)
    return "done"


async def test_steps_that_don_t_wait_for_one_another_are_under_way_at_once() -> None:
    together = asyncio.Barrier(MAX_AT_ONCE)

    async def meet() -> str:
        async with asyncio.timeout(30):
            await together.wait()
        return "met"

    steps = [tool_step(f"s{index}", tool="meet") for index in range(MAX_AT_ONCE)]
    run = run_of(steps, tools_by_name={"meet": lambda _: meet()})
    await carry_out(run)
    assert run.most_at_once == MAX_AT_ONCE


async def test_no_more_are_under_way_at_once_than_may_be_steps_and_items_together() -> None:
    each = {"name": "m", "kind": "map", "over": list(range(20)), "do": {"kind": "tool", "tool": "slow"}}
    steps = [each, *(tool_step(f"s{index}", tool="slow") for index in range(12))]
    run = run_of(steps, tools_by_name={"slow": lambda _: several_turns()})
    await carry_out(run)
    assert run.most_at_once == MAX_AT_ONCE
    assert len(run.calls) == 32


async def test_a_linear_plan_has_one_under_way_its_map_s_items_in_order() -> None:
    each = {"name": "m", "kind": "map", "over": [1, 2, 3], "after": ["a"], "do": {"kind": "tool", "tool": "slow"}}
    run = run_of(
        [tool_step("a", tool="slow"), each],
        policy=PlanPolicy(require_linear=True),
        tools_by_name={"slow": lambda _: several_turns()},
    )
    await carry_out(run)
    assert run.most_at_once == 1
    assert run.ended == ["a-0-1", "m-1-1", "m-2-1", "m-3-1"]


async def test_a_step_waits_for_those_in_its_after_and_in_its_references_wherever_they_stand() -> None:
    steps = [
        tool_step("last", arguments={"x": {"$from": "second"}}),
        tool_step("second", after=["first"]),
        tool_step("first", tool="slow"),
    ]
    run = run_of(steps, tools_by_name={"echo": echo, "slow": lambda _: several_turns()})
    await carry_out(run)
    assert run.ended == ["first-0-1", "second-0-1", "last-0-1"]


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps, in any order, of a graph without cycles."""
    count = draw(st.integers(1, 12))
    steps = []
    for index in range(count):
        before = [f"s{each}" for each in range(index)]
        after = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        refers = draw(st.lists(st.sampled_from(before), max_size=2)) if before else []
        steps.append(tool_step(f"s{index}", after=after, arguments={"of": [{"$from": each} for each in refers]}))
    return draw(st.permutations(steps))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_of_any_graph_each_step_begins_once_and_after_those_that_it_waits_for(steps: list[dict[str, Any]]) -> None:
    begun: list[tuple[str, frozenset[str]]] = []

    class Watched(FakeRun):
        async def call_tool(self, step: str, tool: str, arguments_json: str) -> Any:
            begun.append((step, frozenset(self.ended)))
            return await super().call_tool(step, tool, arguments_json)

    run = Watched(run_of(steps).request, tools_by_name={"echo": lambda _: several_turns()})
    result = asyncio.run(carry_out(run))
    assert set(states(result.plan_trace_json).values()) == {"done"}
    assert sorted(name for name, _ in begun) == sorted(f"{each['name']}-0-1" for each in steps)
    ended_before = dict(begun)
    for step in steps:
        waits = {*step["after"], *(each["$from"] for each in step["arguments"]["of"])}
        assert {f"{name}-0-1" for name in waits} <= ended_before[f"{step['name']}-0-1"]


async def test_the_same_run_again_asks_and_calls_by_the_same_names_whatever_ends_first() -> None:
    def run(slow: str) -> FakeRun:
        async def wait(name: str) -> str:
            return await several_turns() if name == slow else "done"

        steps = [
            tool_step("a", tool="wait", arguments={"name": "a"}),
            tool_step("b", tool="wait", arguments={"name": "b"}),
            {
                "name": "m",
                "kind": "map",
                "over": ["x", "y"],
                "do": {"kind": "tool", "tool": "wait", "arguments": {"name": {"$item": ""}}},
            },
            infer_step("i", [{"$from": "a"}, {"$from": "m"}]),
        ]
        return run_of(steps, answers={"i-0-1": "yes"}, tools_by_name={"wait": lambda given: wait(given["name"])})

    runs = [run(slow) for slow in ("a", "b", "x", "y")]
    for each in runs:
        await carry_out(each)
    assert len({tuple(each.ended) for each in runs}) > 1
    assert all(each.calls == runs[0].calls and each.inferences == runs[0].inferences for each in runs)


async def test_names_of_steps_that_look_like_numbered_ones_don_t_collide() -> None:
    # The fake fails on a name that comes twice.
    do = {"kind": "tool", "tool": "echo"}
    steps = [
        {"name": "a", "kind": "map", "over": [1, 2], "do": do},
        {"name": "a-1", "kind": "map", "over": [1, 2], "do": do},
        *(tool_step(name) for name in ("a-0", "a-1-1", "a-0-1", "plan", "plan-0", "output", "output-0-0", "x" * 32)),
        infer_step("output-1", output={"schema": {}}),
    ]
    contract = OutputContract(rules=(), schema={}, semantic_check="Well?")
    answers = {"output-1-0-1": "1", "output-0-a": '{"answer": "yes"}'}
    run = run_of(steps, contract=contract, answers=answers, tools_by_name={"echo": echo})
    await carry_out(run)
    assert len(run.calls) == 12


def stuck_in(state: State) -> FakeRun:
    """A run that waits in that state for what never comes."""
    match state:
        case State.PLAN:
            return run_of(None, answers={"plan-1": for_ever})
        case State.EXECUTE:
            each = {"name": "m", "kind": "map", "over": [1], "do": {"kind": "tool", "tool": "slow"}}
            steps = [tool_step("t", tool="slow"), infer_step("i"), each, tool_step("later", after=["t"])]
            tools = {"slow": lambda _: for_ever(), "echo": echo}
            return run_of(steps, answers={"i-0-1": for_ever}, tools_by_name=tools)
        case _:
            contract = OutputContract(semantic_check="Well?")
            return run_of(
                [tool_step("t")], contract=contract, answers={"output-0-a": for_ever}, tools_by_name={"echo": echo}
            )


@pytest.mark.parametrize(
    ("state", "stopped", "found"),
    [
        (State.PLAN, {"plan-1"}, {}),
        (
            State.EXECUTE,
            {"t-0-1", "i-0-1", "m-1-1"},
            {"t": "running", "i": "running", "m": "running", "later": "waiting"},
        ),
        (State.VALIDATE, {"output-0-a"}, {"t": "done"}),
    ],
)
async def test_a_cancellation_reaches_what_is_under_way_and_the_trace_is_kept(
    state: State, stopped: set[str], found: dict[str, str]
) -> None:
    run = stuck_in(state)
    run.expected = frozenset(stopped)
    task = asyncio.create_task(carry_out(run))
    async with asyncio.timeout(30):
        await run.reached.wait()
    assert run.entered[-1] is state
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(run.cancelled) == stopped
    assert run.under_way == 0
    assert states(run.kept_trace) == found


async def test_a_cancellation_reaches_a_run_that_is_prepared() -> None:
    begun = asyncio.Event()

    class Slow(ContractChecks):
        async def prepare(self, contract: OutputContract) -> None:
            del contract
            begun.set()
            await for_ever()

    run = run_of([tool_step("a"), infer_step("b", output={"schema": {}})], tools_by_name={"echo": echo})
    task = asyncio.create_task(run_plan(run, Slow(run)))
    async with asyncio.timeout(30):
        await begun.wait()
    assert run.entered[-1] is State.PREPARE
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert states(run.kept_trace) == {"a": "waiting", "b": "waiting"}
    assert run.names == []


async def test_without_an_engine_no_tool_is_called_for_a_plan_that_needs_one() -> None:
    missing = failed(Code.CONFIG_NO_ENGINE, "no engine is configured")
    needs = run_of([tool_step("a"), infer_step("b", after=["a"])], engine_error=missing, tools_by_name={"echo": echo})
    assert (await failure_of(needs)).code is Code.CONFIG_NO_ENGINE
    assert (needs.calls, needs.entered[-1]) == ({}, State.PREPARE)
    await carry_out(run_of([tool_step("a")], engine_error=missing, tools_by_name={"echo": echo}))
