"""Conversations of several runs."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import orchestration_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from tests.orchestration.scripted import ScriptedModel

from .bench import TIMEOUT_S, asked, model_sidecar, refused, run, runs_of

LATE_MS = 30_000
SOON = pb.ExecutionHints(timeout=Duration(nanos=500_000_000))


def told(body: dict[str, Any]) -> list[str]:
    return [each["content"] for each in body["messages"] if each["content"]]


async def test_a_session_goes_on_in_another_run_and_after_a_restart(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.calls(("add", {"a": 1, "b": 2}))
    scripted_model.says("Three.")
    scripted_model.says("Four.")
    scripted_model.says("Five.")
    with tempfile.TemporaryDirectory(prefix="fh-") as state:
        with model_sidecar(scripted_model, tmp_path, at=Path(state)) as sidecar:
            async with runs_of(sidecar) as stub:
                await run(stub, asked("1 + 2?", session_id="sums"))
                await run(stub, asked("And one more?", session_id="sums"))
        with model_sidecar(scripted_model, tmp_path, at=Path(state)) as sidecar:
            async with runs_of(sidecar) as stub:
                await run(stub, asked("And another?", session_id="sums"))
    assert told(scripted_model.requests()[-1]) == [
        *("1 + 2?", "3", "Three.", "And one more?", "Four.", "And another?"),
    ]


async def test_runs_of_a_session_come_one_after_the_other(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("First.", latency=500)
    scripted_model.says("Second.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            first = asyncio.create_task(run(stub, asked("One?", session_id="s")))
            await scripted_model.arrived(1)
            await run(stub, asked("Two?", session_id="s"))
            await first
    assert told(scripted_model.requests()[1]) == ["One?", "First.", "Two?"]


async def test_what_ends_a_run_that_waits_for_its_session_is_its_end_on_record(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.says("First.", latency=LATE_MS)
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            first = asyncio.create_task(run(stub, asked("One?", session_id="s", request_id="first")))
            await scripted_model.arrived(1)
            cancelled = asked("Two?", session_id="s", request_id="cancelled")
            late = asked("Three?", session_id="s", request_id="late", hints=SOON)
            for request, code in ((cancelled, "CANCELLED_SIGNAL"), (late, "CANCELLED_TIMEOUT")):
                waits = asyncio.create_task(run(stub, request))
                while request is cancelled and not waits.done():
                    with contextlib.suppress(grpc.aio.AioRpcError):  # not begun yet
                        await stub.CancelRun(pb.CancelRunRequest(request_id=request.request_id), timeout=TIMEOUT_S)
                response = await waits
                assert (response.state, response.error.code) == ("CANCELLED", code)
                assert not first.done()
                assert await run(stub, request) == response, "it is answered from the record"
            await stub.CancelRun(pb.CancelRunRequest(request_id="first"), timeout=TIMEOUT_S)
            await first
            scripted_model.clear()
            scripted_model.says("Four.")
            assert (await run(stub, asked("Four?", session_id="s"))).content == "Four."
    assert told(scripted_model.requests()[-1]) == ["Four?"]


async def test_a_run_that_fails_adds_nothing(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.fails(401)
    scripted_model.says("Yes.")
    with model_sidecar(scripted_model, tmp_path) as sidecar:
        async with runs_of(sidecar) as stub:
            failed = await run(stub, asked("One?", session_id="s"))
            await run(stub, asked("Two?", session_id="s"))
    assert failed.state == "FAILED"
    assert told(scripted_model.requests()[-1]) == ["Two?"]


async def test_a_long_history_is_trimmed_by_whole_runs(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    for _ in range(4):
        scripted_model.says("Yes.")
    with model_sidecar(scripted_model, tmp_path, more="[orchestration]\nhistory_messages = 3\n") as sidecar:
        async with runs_of(sidecar) as stub:
            for number in range(4):
                await run(stub, asked(f"{number}?", session_id="s"))
    assert told(scripted_model.requests()[-1]) == ["2?", "Yes.", "3?"]


async def test_without_payloads_there_are_no_sessions(scripted_model: ScriptedModel, tmp_path: Path) -> None:
    scripted_model.says("Yes.")
    with model_sidecar(scripted_model, tmp_path, more='[journal]\npayloads = "hash"\n') as sidecar:
        async with runs_of(sidecar) as stub:
            alone = await run(stub, asked())
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await run(stub, asked(session_id="s"))
    assert alone.content == "Yes."
    assert refused(caught.value)[0] is grpc.StatusCode.FAILED_PRECONDITION
