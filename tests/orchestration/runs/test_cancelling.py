"""`CancelRun` at each state in which a run of each mode waits for something: it ends there, and stays ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar

from .bench import TIMEOUT_S, asked, model_sidecar, run, runs_of

LATE_MS = 30_000
JUDGED = pb.OutputContract(schema_json='{"type": "object"}', semantic_check="Is it right?")
WAITING = [{"name": "wait", "kind": "tool", "tool": "wait", "arguments": {"seconds": 25}}]
ASKING = [{"name": "ask", "kind": "infer", "prompt": "Say it."}]


def planned(steps: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    plan = {"steps": steps, "output": {"$from": steps[-1]["name"]}}
    return {"mode": pb.MODE_PLAN, "plan": pb.PlanOptions(plan_json=json.dumps(plan)), **fields}


@dataclass(frozen=True)
class Case:
    """Where a run is when it is cancelled."""

    state: str
    fields: dict[str, Any]
    answers: tuple[str, ...] = ()
    """Before the inference that never ends. With `tool`, there is none of that kind."""
    tool: bool = False
    """Whether a call of a tool is under way."""
    requests: int = field(default=1, kw_only=True)
    """Under way at the engine."""


REPLICAS = {"mode": pb.MODE_REDUNDANT, "redundant": pb.RedundantOptions(replicas=3)}
STRUCTURED = {"mode": pb.MODE_STRUCTURED, "output": JUDGED}
CASES = {
    "chat, the model is asked": Case("EXECUTE", {}),
    "chat, a tool is called": Case("EXECUTE", {}, tool=True),
    "structured, a tool is called": Case("EXECUTE", STRUCTURED, tool=True),
    "structured, the output is asked for": Case("EXECUTE", {**STRUCTURED, "no_tools": True}),
    "structured, the output is judged": Case("VALIDATE", {**STRUCTURED, "no_tools": True}, ("{}",)),
    "redundant, replicas are asked": Case("EXECUTE", REPLICAS, requests=3),
    "plan, the plan is asked for": Case("PLAN", {"mode": pb.MODE_PLAN}),
    "plan, a step asks the model": Case("EXECUTE", planned(ASKING)),
    "plan, a step calls a tool": Case("EXECUTE", planned(WAITING), tool=True),
    "plan, the output is judged": Case("VALIDATE", planned(ASKING, output=JUDGED), ("{}",)),
}


@pytest.fixture(scope="module")
def sidecar(model_server: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    with model_sidecar(model_server, tmp_path_factory.mktemp("cancelled")) as running:
        yield running


async def cancel(stub: Any, request_id: str) -> None:
    await stub.CancelRun(pb.CancelRunRequest(request_id=request_id), timeout=TIMEOUT_S)


@pytest.mark.parametrize("name", CASES)
async def test_a_run_that_is_cancelled_ends_where_it_is_with_what_it_waits_for(
    scripted_model: ScriptedModel, sidecar: Sidecar, name: str
) -> None:
    case = CASES[name]
    for text in case.answers:
        scripted_model.says(text)
    if case.tool and case.fields.get("mode") != pb.MODE_PLAN:
        scripted_model.calls(("wait", {"seconds": 25}))
    elif not case.tool:
        scripted_model.says("late", latency=LATE_MS, times=None)
    request = asked(request_id=name.replace(", ", "-").replace(" ", "-"), **case.fields)
    states: list[tuple[str, str]] = []
    async with runs_of(sidecar) as stub:
        stream = stub.StreamRun(pb.StreamRunRequest(request=request), timeout=TIMEOUT_S)
        waits = asyncio.Event()

        async def read() -> pb.SystemResponse:
            async for each in stream:
                if each.HasField("transition"):
                    states.append((each.transition.from_state, each.transition.to_state))
                if each.HasField("tool_update"):
                    waits.set()
            return each.finished

        reading = asyncio.create_task(read())
        if case.tool:
            await waits.wait()
        else:
            await scripted_model.arrived(len(case.answers) + case.requests)
        await cancel(stub, request.request_id)
        response = await reading
        again = await run(stub, request)
    assert (response.state, response.error.code) == ("CANCELLED", "CANCELLED_SIGNAL"), response.error.message
    assert "CancelRun" in response.error.message
    assert states[-1] == (case.state, "CANCELLED")
    assert again == response, "the request is answered with that from now on"
    if not case.tool:
        await scripted_model.abandoned(case.requests)
