"""Mode `plan` through gRPC: plans that a model makes, interruptions, and what is told of a plan that failed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from fumehood.v1 import orchestration_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from tests.orchestration.scripted import ScriptedModel

from .bench import asked, events_of, model_sidecar, run, runs_of
from .test_resuming import killed_at, state

__all__ = ["state"]


def planned(*steps: dict[str, Any], output: Any = None, policy: pb.PlanPolicy | None = None, **fields: Any) -> Any:
    """A request with a plan of these steps; without any, one of which a model makes the plan."""
    plan = {"steps": steps} | ({} if output is None else {"output": output})
    options = pb.PlanOptions(plan_json=json.dumps(plan) if steps else "", policy=policy)
    return asked("Go.", mode=pb.MODE_PLAN, plan=options, **fields)


def tool(name: str, called: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "kind": "tool", "tool": called, **fields}


def steps_of(response: pb.SystemResponse) -> dict[str, str]:
    return {each["name"]: each["state"] for each in json.loads(response.plan_trace_json)["steps"]}


async def test_a_model_makes_the_plan_and_mends_it_and_its_steps_are_held_against_their_contracts(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    pairs = [[1, 2], [3, 4]]
    add = {"kind": "tool", "tool": "add", "arguments": {"a": {"$item": "/0"}, "b": {"$item": "/1"}}}
    schema = {"type": "object", "properties": {"most": {"type": "integer"}}, "required": ["most"]}
    plan = {
        "rationale": "sums first",
        "steps": [
            {"name": "sums", "kind": "map", "over": pairs, "do": add},
            {
                "name": "most",
                "kind": "infer",
                "prompt": ["Which is the most? ", {"$from": "sums"}],
                "retries": 1,
                "output": {"schema": schema, "repair_allowed": True},
            },
            {
                "name": "check",
                "kind": "validate",
                "of": {"$from": "most"},
                "rules": [{"name": "positive", "pointer": "/most", "minimum": 1}],
                "semantic_check": "Is it one of the sums?",
            },
        ],
    }
    scripted_model.says("I add them up, then I look.")
    scripted_model.says(f"```json\n{json.dumps(plan)}\n```")
    scripted_model.says("Seven, I think.")
    scripted_model.says('Here: {"most": 7,}')
    scripted_model.says('{"answer": "yes"}')
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            events = await events_of(stub, planned())
    response = events[-1].finished
    assert json.loads(response.output_json) == {"most": 7}, response
    asked_by = [each.inference_started.name for each in events if each.HasField("inference_started")]
    assert asked_by == ["plan-1", "plan-2", "most-0-1", "most-0-2", "check-0-0-a"]
    states = [each.transition.to_state for each in events if each.HasField("transition")]
    assert states == ["PLAN", "PREPARE", "EXECUTE", "VALIDATE", "COMPLETE"]
    assert [each.tool for each in response.tool_calls_made] == ["add", "add"]
    trace = json.loads(response.plan_trace_json)
    assert (trace["planner_id"], trace["planning_attempts"]) == ("model:scripted", 2)
    told = [body["messages"][-1]["content"] for body in scripted_model.requests()]
    assert "is not JSON" in told[1]
    assert "[3,7]" in told[2]
    assert not any(body.get("tools") for body in scripted_model.requests()), "no model is offered a tool"


async def test_a_plan_that_a_kill_interrupts_goes_on_where_its_record_ends(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    note, let_go = {"path": str(tmp_path / "notes/a"), "text": {"$from": "word"}}, tmp_path / "signals/let-go"
    request = planned(
        {"name": "word", "kind": "infer", "prompt": "One word."},
        tool("write", "note", arguments=note),
        tool("rest", "hold", arguments={"path": str(let_go)}, after=["write"]),
        {"name": "tell", "kind": "infer", "prompt": ["Tell of ", {"$from": "rest"}]},
        request_id="killed",
    )
    scripted_model.says("one")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            await killed_at(sidecar, stub, request, "tool_update")
    let_go.touch()
    scripted_model.says("It waited.")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert (response.content, response.state) == ("It waited.", "COMPLETE"), response
    assert (tmp_path / "notes/a").read_text() == "one\n", "it is not written twice"
    assert len(scripted_model.requests()) == 2, "the first answer is on record"
    assert set(steps_of(response).values()) == {"done"}


async def test_an_effect_in_doubt_is_not_repeated_by_a_step_s_retries_and_the_plan_goes_on_where_it_may(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    slow = {"path": str(tmp_path / "notes/a"), "text": "one", "seconds": 20}
    request = planned(
        tool("write", "slow_note", arguments=slow, retries=3, on_failure="skip"),
        tool("sum", "add", arguments={"a": 1, "b": 2}, after=["write"]),
        request_id="doubt",
    )
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            await killed_at(sidecar, stub, request, "tool_update")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert (tmp_path / "notes/a").read_text() == "one\n"
    assert [each.error.code for each in response.tool_calls_made] == ["TOOL_OUTCOME_UNKNOWN", ""]
    assert steps_of(response) == {"write": "skipped", "sum": "done"}
    assert response.output_json == "3"


async def test_a_plan_that_fails_or_is_ended_tells_how_far_it_came(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    good = tool("sum", "add", arguments={"a": 1, "b": 2})
    slow = tool("slow", "wait", arguments={"seconds": 20}, after=["sum"])
    late = tool("late", "add", arguments={"a": 1, "b": 2}, after=["slow"])
    some = Duration(seconds=4)
    cases = {
        "failing": planned(good, tool("slow", "fail", arguments={"why": "so"}, after=["sum"]), late),
        "step timeout": planned(good, slow, late, policy=pb.PlanPolicy(step_timeout=some)),
        "run timeout": planned(good, slow, late, hints=pb.ExecutionHints(timeout=some)),
    }
    found = {}
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            responses = await asyncio.gather(*(run(stub, request) for request in cases.values()))
            for name, response in zip(cases, responses, strict=True):
                assert steps_of(response) | {"slow": ""} == {"sum": "done", "slow": "", "late": "waiting"}
                found[name] = (response.state, response.error.code, steps_of(response)["slow"])
    assert found == {
        "failing": ("FAILED", "TOOL_EXECUTION_FAILED", "failed"),
        "step timeout": ("FAILED", "TOOL_TIMEOUT", "failed"),
        "run timeout": ("CANCELLED", "CANCELLED_TIMEOUT", "running"),
    }


async def test_a_plan_that_may_not_be_carried_out_calls_nothing(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    good = tool("sum", "add", arguments={"a": 1, "b": 2})
    cases = {
        "policy": planned(good, policy=pb.PlanPolicy(allowed_step_kinds=["infer"])),
        "no such tool": planned(good, tool("b", "ad")),
        "not allowed": planned(good, tool("b", "fail"), allowed_tools=["add"]),
        "cycle": planned(good, tool("b", "add", after=["b"])),
        "schema": planned(good, {"name": "v", "kind": "validate", "of": {"$from": "sum"}, "schema": {"type": "no"}}),
    }
    found = {}
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            for name, request in cases.items():
                response = await run(stub, request)
                found[name] = response.error.code
                assert (response.state, len(response.tool_calls_made)) == ("FAILED", 0)
            assert (await run(stub, planned(good))).output_json == "3"
    assert found == {
        "policy": "VALIDATION_RULE_FAILED",
        "no such tool": "TOOL_NOT_FOUND",
        "not allowed": "TOOL_NOT_FOUND",
        "cycle": "CONSTRAINT_SCHEMA_INVALID",
        "schema": "CONFIG_SCHEMA_REQUIRED",
    }
