"""Conversations of several runs."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.orchestration.scripted import ScriptedModel

from .bench import asked, model_sidecar, refused, run, runs_of


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
