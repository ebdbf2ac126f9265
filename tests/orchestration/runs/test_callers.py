"""Whose runs are whose: tools, ids, sessions and steering by callers with names; budgets and the operator's caps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1.orchestration_service_pb2_grpc import OrchestrationServiceStub

from tests.callers.support import bearer, token_of
from tests.orchestration.scripted import ScriptedModel

from .bench import asked, model_sidecar, refused, run, runs_of

CALLERS = """
[[caller]]
name = "one"
tools = ["add", "hold", "wait"]
[[caller]]
name = "two"
tools = ["*"]
"""
LISTEN = 'listen = ["unix:s", "127.0.0.1:0"]'


async def status_of(stub: Any, request: pb.SystemRequest, metadata: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run(stub, request, metadata)
    return refused(caught.value)[0]


async def test_a_run_has_its_callers_rights_and_nobody_elses_runs(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("note", {"path": str(tmp_path / "notes/a"), "text": "x"}), ("add", {"a": 1, "b": 1}))
    scripted_model.says("Two.", times=None)
    with model_sidecar(scripted_model, tmp_path, more=CALLERS, server=LISTEN) as sidecar:
        one, two = (bearer(token_of(sidecar.folder, name)) for name in ("one", "two"))
        async with grpc.aio.insecure_channel(sidecar.targets[1]) as channel:
            stub = OrchestrationServiceStub(channel)
            response = await run(stub, asked(request_id="r", session_id="s"), one)
            assert await status_of(stub, asked(request_id="r", session_id="s"), two) is grpc.StatusCode.ALREADY_EXISTS
            assert await status_of(stub, asked(session_id="s"), two) is grpc.StatusCode.FAILED_PRECONDITION
            assert await status_of(stub, asked(), None) is grpc.StatusCode.UNAUTHENTICATED
            assert (await run(stub, asked("More?", session_id="s"), one)).content == "Two."
    assert [each.error.code for each in response.tool_calls_made] == ["TOOL_DENIED", ""]
    offered = [each["function"]["name"] for each in scripted_model.requests()[0]["tools"]]
    assert offered == ["add", "hold", "wait"]
    assert not (tmp_path / "notes/a").exists()


async def test_a_run_is_steered_by_its_caller_alone(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    told = tmp_path / "signals/told"
    scripted_model.calls(("hold", {"path": str(told)}))
    said = [pb.Message(role=pb.MESSAGE_ROLE_USER, text="And?")]
    scripted_model.says("And so on.")
    with model_sidecar(scripted_model, tmp_path, more=CALLERS, server=LISTEN) as sidecar:
        one, two = (bearer(token_of(sidecar.folder, name)) for name in ("one", "two"))
        async with grpc.aio.insecure_channel(sidecar.targets[1]) as channel:
            stub: Any = OrchestrationServiceStub(channel)
            running = asyncio.create_task(run(stub, asked(request_id="r"), one))
            await scripted_model.arrived(1)
            steering = pb.SteerRunRequest(request_id="r", messages=said)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.SteerRun(steering, metadata=two)
            await stub.SteerRun(steering, metadata=one)
            told.touch()
            response = await running
    assert refused(caught.value)[0] is grpc.StatusCode.NOT_FOUND
    assert response.content == "And so on."
    assert [each["content"] for each in scripted_model.requests()[1]["messages"]].count("And?") == 1


async def test_budgets_end_a_run_by_name(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 1}), usage=(60, 40), times=None)
    more = "[orchestration]\nmax_tokens = 300\n"
    with model_sidecar(scripted_model, tmp_path, more=more) as sidecar:
        async with runs_of(sidecar) as stub:
            found = [
                await run(stub, asked(budget=budget))
                for budget in (pb.RunBudget(), pb.RunBudget(max_tokens=100), pb.RunBudget(max_tool_calls=1))
            ]
    assert [(each.error.code, each.usage.inferences) for each in found] == [
        ("TOOL_QUOTA_EXCEEDED", 3),
        ("TOOL_QUOTA_EXCEEDED", 1),
        ("TOOL_QUOTA_EXCEEDED", 2),
    ]
    assert "max_tokens is 300" in found[0].error.message
    assert "max_tokens is 100" in found[1].error.message
    assert "max_tool_calls is 1" in found[2].error.message


async def test_no_more_runs_than_the_operator_allows(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    refused_one = tmp_path / "signals/refused-one"
    scripted_model.calls(("hold", {"path": str(refused_one)}))
    scripted_model.says("Slow.")
    with model_sidecar(scripted_model, tmp_path, more="[orchestration]\nmax_runs = 1\n") as sidecar:
        async with runs_of(sidecar) as stub:
            running = asyncio.create_task(run(stub, asked()))
            await scripted_model.arrived(1)
            assert await status_of(stub, asked(), None) is grpc.StatusCode.RESOURCE_EXHAUSTED
            refused_one.touch()
            assert (await running).content == "Slow."


async def test_an_engines_transient_failures_are_tried_again_and_others_are_not(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.fails(503)
    scripted_model.fails(429, retry_after=0)
    scripted_model.says("At last.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            found = await run(stub, asked())
            scripted_model.fails(401)
            lost = await run(stub, asked())
    assert found.content == "At last."
    assert lost.state == "FAILED"
    assert lost.error.code.startswith("INFERENCE_")
    assert len(scripted_model.requests()) == 4
