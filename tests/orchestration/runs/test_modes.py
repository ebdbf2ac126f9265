"""Modes `structured`, `redundant` and `plan` through gRPC."""

from __future__ import annotations

import json
from pathlib import Path

from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.scripted import ScriptedModel

from .bench import asked, events_of, model_sidecar, run, runs_of

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"sum": {"type": "integer"}, "parity": {"enum": ["even", "odd"]}},
        "required": ["sum", "parity"],
        "additionalProperties": False,
    }
)


async def test_structured_output_comes_after_tools_and_is_asked_for_again_with_its_faults(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}))
    scripted_model.says("The sum is 3.")
    scripted_model.says('{"sum": "three", "parity": "odd"}')
    scripted_model.says('```json\n{"sum": 3, "parity": "Odd.",}\n```')
    request = asked(
        "1 + 2?",
        mode=pb.MODE_STRUCTURED,
        output=pb.OutputContract(schema_json=SCHEMA, repair_allowed=True, strict=True),
    )
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            events = await events_of(stub, request)
    response = events[-1].finished
    assert json.loads(response.output_json) == {"sum": 3, "parity": "odd"}
    assert response.state == "COMPLETE"
    assert [each.tool for each in response.tool_calls_made] == ["add"]
    states = [each.transition.to_state for each in events if each.HasField("transition")]
    assert states == ["PREPARE", "EXECUTE", "VALIDATE", "EXECUTE", "VALIDATE", "COMPLETE"]
    bodies = scripted_model.requests()
    assert bodies[0].get("tools")
    assert not bodies[2].get("tools"), "the output is asked for without tools"
    assert "/sum" in bodies[3]["messages"][-1]["content"]


async def test_a_strict_contract_that_is_never_met_fails_the_run_by_its_faults(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.says("No.", times=None)
    found = {}
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            for strict in (True, False):
                output = pb.OutputContract(schema_json=SCHEMA, strict=strict)
                options = pb.StructuredOptions(max_retries=1)
                request = asked(mode=pb.MODE_STRUCTURED, output=output, structured=options, no_tools=True)
                response = await run(stub, request)
                found[strict] = (response.state, response.error.code, response.usage.inferences)
            missing = await run(stub, asked(mode=pb.MODE_STRUCTURED))
    assert found == {
        True: ("FAILED", "CONSTRAINT_JSON_INVALID", 2),
        False: ("COMPLETE", "CONSTRAINT_JSON_INVALID", 2),
    }
    assert missing.error.code == "CONFIG_SCHEMA_REQUIRED"


async def test_replicas_vote_and_a_lost_one_is_not_a_lost_run(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("yes")
    scripted_model.fails(401)
    scripted_model.says("yes ")
    request = asked(mode=pb.MODE_REDUNDANT, redundant=pb.RedundantOptions(replicas=3))
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
            for text in ("a", "b", "c"):
                scripted_model.says(text)
            split = await run(stub, request)
    assert response.content.strip() == "yes"
    assert round(response.confidence, 2) == 0.67
    assert response.confidence_source == "voting"
    assert (split.state, split.error.code) == ("FAILED", "ORCHESTRATION_NO_CONSENSUS")


async def test_a_plan_is_carried_out_by_its_dependencies(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    plan = {
        "steps": [
            {"name": "one", "kind": "tool", "tool": "add", "arguments": {"a": 1, "b": 2}},
            {"name": "two", "kind": "tool", "tool": "add", "arguments": {"a": {"$from": "one"}, "b": 10}},
            {"name": "tell", "kind": "infer", "prompt": ["Say it: ", {"$from": "two"}]},
        ],
        "output": {"$from": "tell"},
    }
    scripted_model.says("Thirteen.")
    request = asked(mode=pb.MODE_PLAN, plan=pb.PlanOptions(plan_json=json.dumps(plan)))
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert response.content == "Thirteen.", response
    assert [each.tool for each in response.tool_calls_made] == ["add", "add"]
    trace = json.loads(response.plan_trace_json)
    assert trace["step_count"] == 3
    assert "13" in scripted_model.requests()[0]["messages"][-1]["content"]
