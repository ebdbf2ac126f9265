"""Runs that a crash or a shutdown interrupts go on, and nothing that had an effect runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as approval_pb
from fumehood.v1 import approval_service_pb2_grpc as approval_grpc
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.scripted import ScriptedModel
from tests.sidecar import Sidecar

from .bench import TIMEOUT_S, asked, events_of, kinds, model_sidecar, refused, run, runs_of


async def killed_at(sidecar: Sidecar, stub: Any, request: pb.SystemRequest, event: str) -> pb.StreamRunResponse:
    """Kill the sidecar at a run's first event of a kind."""
    call = stub.StreamRun(pb.StreamRunRequest(request=request), timeout=TIMEOUT_S)
    found = None
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for each in call:
            if found is None and each.WhichOneof("event") == event:
                found = each
                sidecar.signal(signal.SIGKILL)
                sidecar.wait()
    assert found is not None, f"there is no {event}"
    return found


@pytest.fixture
def state() -> Iterator[Path]:
    """The folder of a sidecar that is started again."""
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield Path(name)


async def test_a_run_that_has_ended_is_answered_from_its_record(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    scripted_model.calls(("note", {"path": str(tmp_path / "notes/a"), "text": "one"}))
    scripted_model.says("Noted.")
    request = asked(request_id="once")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            first = await run(stub, request)
            again = await run(stub, request)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await run(stub, asked("Something else.", request_id="once"))
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            events = await events_of(stub, request)
    assert first == again == events[-1].finished
    assert kinds(events) == ["started", "finished"]
    assert events[0].started.resumed
    assert (tmp_path / "notes/a").read_text() == "one\n"
    assert len(scripted_model.requests()) == 2
    assert refused(caught.value)[0] is grpc.StatusCode.ALREADY_EXISTS


async def test_a_run_that_a_kill_interrupts_goes_on_where_its_record_ends(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    note = {"path": str(tmp_path / "notes/a"), "text": "one"}
    let_go = tmp_path / "signals/let-go"
    scripted_model.calls(("note", note), usage=(100, 50))
    scripted_model.calls(("hold", {"path": str(let_go)}))
    request = asked(request_id="killed")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            await killed_at(sidecar, stub, request, "tool_update")
    let_go.touch()
    scripted_model.says("Noted, and waited.")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            events = await events_of(stub, request)
    response = events[-1].finished
    assert (response.content, response.state) == ("Noted, and waited.", "COMPLETE")
    assert (tmp_path / "notes/a").read_text() == "one\n", "it is not written twice"
    assert len(scripted_model.requests()) == 3, "two answers are on record"
    assert [each.inference_finished.recorded for each in events if each.HasField("inference_finished")] == [
        True,
        True,
        False,
    ]
    errors = [each.error.code for each in response.tool_calls_made]
    assert errors == ["", ""], "the call that was under way can have no effect, and ran again"
    assert response.usage.input_tokens == 120, "what was used before counts"


async def test_an_effect_that_a_kill_left_in_doubt_is_not_repeated(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    slow = {"path": str(tmp_path / "notes/a"), "text": "one", "seconds": 20}
    scripted_model.calls(("slow_note", slow))
    request = asked(request_id="doubt")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            await killed_at(sidecar, stub, request, "tool_update")
    scripted_model.says("Nobody knows.")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert [each.error.code for each in response.tool_calls_made] == ["TOOL_OUTCOME_UNKNOWN"]
    assert (tmp_path / "notes/a").read_text() == "one\n"
    told = [each["content"] for each in scripted_model.requests()[-1]["messages"] if each["role"] == "tool"]
    assert "TOOL_OUTCOME_UNKNOWN" in told[0], "the model is told"


async def test_a_shutdown_leaves_a_run_to_go_on_and_ends_one_that_nobody_can_ask_for_again(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    scripted_model.says("late", latency=20_000, when="named")
    scripted_model.says("late", latency=20_000, when="nameless")
    request = asked("named", request_id="later")
    with model_sidecar(scripted_model, tmp_path, at=state, server="drain_s = 1") as sidecar:
        async with runs_of(sidecar) as stub:
            named = asyncio.create_task(run(stub, request))
            nameless = asyncio.create_task(run(stub, asked("nameless")))
            await scripted_model.arrived(2)
            sidecar.signal(signal.SIGTERM)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await named
            ended = await nameless
            sidecar.wait()
    assert refused(caught.value)[0] is grpc.StatusCode.UNAVAILABLE
    assert "request_id" in refused(caught.value)[1]
    assert (ended.state, ended.error.code) == ("CANCELLED", "CANCELLED_SIGNAL")
    scripted_model.clear()
    scripted_model.says("In time.")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert response.content == "In time."


async def test_an_approval_that_a_run_waits_for_survives_a_kill(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    scripted_model.calls(("note", {"path": str(tmp_path / "notes/a"), "text": "one"}))
    request = asked(request_id="waits")
    with model_sidecar(scripted_model, tmp_path, at=state, permission="require_approval") as sidecar:
        async with runs_of(sidecar) as stub:
            first = (await killed_at(sidecar, stub, request, "approval_awaited")).approval_awaited
    scripted_model.says("Noted.")
    with model_sidecar(scripted_model, tmp_path, at=state, permission="require_approval") as sidecar:
        async with sidecar.channel() as channel:
            await approve(channel, first.approval_id)
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert first.call_id == "waits:chat1-1:0"
    assert response.content == "Noted."
    assert (tmp_path / "notes/a").read_text() == "one\n"


async def approve(channel: grpc.aio.Channel, approval_id: str) -> None:
    stub = approval_grpc.ApprovalServiceStub(channel)
    found = (await stub.ListApprovals(approval_pb.ListApprovalsRequest(), timeout=TIMEOUT_S)).approvals
    (approval,) = [each for each in found if each.approval_id == approval_id]
    await stub.DecideApproval(
        approval_pb.DecideApprovalRequest(
            approval_id=approval_id, choice=approval_pb.APPROVAL_CHOICE_APPROVE, digest=approval.digest, reason="yes"
        ),
        timeout=TIMEOUT_S,
    )


SCHEMA = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
PLAN = json.dumps(
    {
        "steps": [
            {"name": "one", "kind": "infer", "prompt": "first"},
            {"name": "write", "kind": "tool", "tool": "note", "arguments": {"path": "PATH", "text": {"$from": "one"}}},
            {"name": "two", "kind": "infer", "prompt": ["second: ", {"$from": "write"}]},
        ]
    }
)
MODES: dict[str, Any] = {
    "structured": {"mode": pb.MODE_STRUCTURED, "output": pb.OutputContract(schema_json=SCHEMA), "no_tools": True},
    "redundant": {"mode": pb.MODE_REDUNDANT, "redundant": pb.RedundantOptions(replicas=2)},
    "plan": {"mode": pb.MODE_PLAN, "plan": pb.PlanOptions(plan_json=PLAN)},
}


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_goes_on_after_a_kill_with_the_answers_that_it_has(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path, mode: str
) -> None:
    note = tmp_path / "notes/a"
    request = asked("Go.", request_id=mode, **MODES[mode])
    request.plan.plan_json = request.plan.plan_json.replace("PATH", str(note))
    if mode != "plan":
        request.ClearField("plan")
    scripted_model.says('{"ok": 1}' if mode == "structured" else "yes")
    scripted_model.says("late", latency=30_000)
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            call = stub.StreamRun(pb.StreamRunRequest(request=request), timeout=TIMEOUT_S)
            answered = asyncio.Event()

            async def read() -> None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for each in call:
                        if each.HasField("inference_finished"):
                            answered.set()

            reading = asyncio.create_task(read())
            await answered.wait()
            await scripted_model.arrived(2)
            sidecar.signal(signal.SIGKILL)
            sidecar.wait()
            await reading
    scripted_model.clear()
    scripted_model.says('{"ok": true}' if mode == "structured" else "yes")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert (response.state, response.error.code) == ("COMPLETE", "")
    assert response.usage.inferences == 2
    assert len(scripted_model.requests()) == 1, "one answer is on record"
    assert not note.exists() or note.read_text() == "yes\n"
    assert note.exists() is (mode == "plan")
