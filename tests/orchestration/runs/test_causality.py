"""What led to what in a run can be read from its events alone: inference, calls, results, next inference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fumehood.v1 import orchestration_service_pb2 as pb

from tests.cli.command import fumehood
from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar

from .bench import asked, model_sidecar, run, runs_of

Event = dict[str, Any]


def recorded(sidecar: Sidecar, run_id: str) -> dict[str, list[Event]]:
    """A run's events by their types."""
    config = sidecar.folder / "fumehood.toml"
    found: dict[str, list[Event]] = {}
    for event in fumehood("journal", "show", run_id, "--json", "--config", config).json["events"]:
        assert event["run_id"] == run_id
        found.setdefault(event["type"], []).append(event)
    return found


async def test_each_call_names_the_answer_that_asked_and_each_inference_the_results_that_it_is_told(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}, "use-a"), ("rm", {}, "use-b"), ("add", {"a": 3, "b": 4}, "use-c"))
    scripted_model.calls(("add", {"a": 5, "b": 6}, "use-d"))
    scripted_model.says("Done.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, asked(request_id="chain", session_id="talk"))
        events = recorded(sidecar, "chain")
    assert response.content == "Done."
    causes = {
        each["call_id"]: (each["context"]["turn_id"], each["context"]["caused_by"]) for each in events["execute_start"]
    }
    assert causes == {
        "chain:chat1-1:0": ("chat1-1", "use-a"),
        "chain:chat1-1:2": ("chat1-1", "use-c"),
        "chain:chat1-2:0": ("chat1-2", "use-d"),
    }
    (refused,) = (each["data"] for each in events["run_tool_refused"])
    assert (refused["inference"], refused["index"]) == ("chat1-1", 1)
    assert {each["call_id"] for each in events["execute_end"]} == set(causes)
    follows = {each["data"]["name"]: each["data"]["follows"] for each in events["inference_start"]}
    assert follows == {"chat1-1": "", "chat1-2": "chat1-1", "chat1-3": "chat1-2"}


async def test_calls_and_inferences_of_a_plan_name_their_steps(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    plan = {
        "steps": [
            {"name": "sum", "kind": "tool", "tool": "add", "arguments": {"a": 1, "b": 2}},
            {"name": "tell", "kind": "infer", "prompt": ["Say it: ", {"$from": "sum"}]},
        ],
        "output": {"$from": "tell"},
    }
    scripted_model.says("Three.")
    request = asked(request_id="plan", mode=pb.MODE_PLAN, plan=pb.PlanOptions(plan_json=json.dumps(plan)))
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            await run(stub, request)
        events = recorded(sidecar, "plan")
    assert [each["context"]["step_name"].partition("-")[0] for each in events["execute_start"]] == ["sum"]
    assert [each["data"]["name"].partition("-")[0] for each in events["inference_start"]] == ["tell"]
