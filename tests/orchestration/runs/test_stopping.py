"""`CancelRun` stops a run that nobody else would: for good, or so that its request goes on with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import orchestration_service_pb2 as pb

from tests.orchestration.scripted import ScriptedModel

from .bench import TIMEOUT_S, asked, model_sidecar, refused, run, runs_of


async def stop(stub: Any, request_id: str, *, resumable: bool = False) -> bool:
    request = pb.CancelRunRequest(request_id=request_id, resumable=resumable)
    answer = await stub.CancelRun(request, timeout=TIMEOUT_S)
    return bool(answer.resumable)


async def begun(stub: Any, request: pb.SystemRequest) -> Any:
    """A stream of the run, once its tool has said something."""
    call = stub.StreamRun(pb.StreamRunRequest(request=request), timeout=TIMEOUT_S)
    async for each in call:
        if each.HasField("tool_update"):
            break
    return call


async def test_a_run_without_a_caller_is_ended_and_its_call_with_it(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("wait", {"seconds": 25}))
    request = asked(request_id="alone", continue_if_disconnected=True)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            (await begun(stub, request)).cancel()
            assert await stop(stub, "alone") is False
            response = await run(stub, request)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stop(stub, "alone")
    assert (response.error.code, response.state) == ("CANCELLED_SIGNAL", "CANCELLED")
    assert [each.error.code for each in response.tool_calls_made] == [""], "it has no outcome that the run has seen"
    assert refused(caught.value)[0] is grpc.StatusCode.NOT_FOUND


async def test_a_run_that_was_stopped_resumably_goes_on_and_asks_nothing_twice(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    path = tmp_path / "notes" / "a"
    scripted_model.calls(("note", {"path": str(path), "text": "once"}))
    scripted_model.calls(("wait", {"seconds": 25}))
    scripted_model.says("Done.")
    request = asked(request_id="later", continue_if_disconnected=True)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            stream = await begun(stub, request)
            assert await stop(stub, "later", resumable=True) is True
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stream:
                    pass
            response = await run(stub, request)
    assert refused(caught.value)[0] is grpc.StatusCode.ABORTED
    assert (response.content, response.state) == ("Done.", "COMPLETE")
    assert path.read_text() == "once\n"
    assert len(scripted_model.requests()) == 3, "two before, one after"
    assert [each.error.code for each in response.tool_calls_made] == ["", "CANCELLED_SIGNAL"]


async def test_a_run_whose_request_has_no_id_of_its_callers_ends(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.calls(("wait", {"seconds": 25}))
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            call = stub.StreamRun(pb.StreamRunRequest(request=asked()), timeout=TIMEOUT_S)
            request_id = ""
            async for each in call:
                request_id = request_id or each.started.request_id
                if each.HasField("tool_update"):
                    stopped = asyncio.create_task(stop(stub, request_id, resumable=True))
    assert await stopped is False
    assert each.finished.error.code == "CANCELLED_SIGNAL"


async def test_a_stream_that_goes_on_from_the_record_leaves_nothing_out(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("wait", {"seconds": 25}))
    scripted_model.says("Done.")
    request = asked(request_id="counted", continue_if_disconnected=True)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            await begun(stub, request)
            await stop(stub, "counted", resumable=True)
            again = pb.StreamRunRequest(request=request, after_sequence=1_000)
            events = [each async for each in stub.StreamRun(again, timeout=TIMEOUT_S)]
    assert events[0].started.resumed
    assert [each.sequence for each in events[1:-1]] == list(range(1, len(events) - 1))
    assert "".join(each.text.text for each in events) == "Done."


async def test_a_caller_that_only_joins_begins_nothing(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("Done.")
    request = pb.StreamRunRequest(request=asked(request_id="known"), join_only=True)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stub.StreamRun(request, timeout=TIMEOUT_S):
                    pass
            asked_before = len(scripted_model.requests())
            await run(stub, request.request)
            events = [each async for each in stub.StreamRun(request, timeout=TIMEOUT_S)]
    assert refused(caught.value)[0] is grpc.StatusCode.NOT_FOUND
    assert asked_before == 0
    assert events[-1].finished.content == "Done."
    assert len(scripted_model.requests()) == 1
