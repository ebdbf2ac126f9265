"""What interrupts a run from around it: a shutdown in the middle of a plan, and a journal that can't be written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import orchestration_service_pb2 as pb
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.orchestration.scripted import ScriptedModel
from tests.rpc.support import reason_of
from tests.sidecar import Sidecar

from .bench import TIMEOUT_S, asked, model_sidecar, run, runs_of

SERVING = health_pb2.HealthCheckResponse.SERVING
UPDATES, FOLLOWERS = 1_500, 10
DISK = 24 * 1024 * 1024


@pytest.fixture
def state() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fh-") as name:
        yield Path(name)


@pytest.fixture
def small_disk(state: Path) -> Iterator[Path]:
    """A file system of its own, where the sidecar keeps its state."""
    folder = state / "disk"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["/bin/umount", str(folder)], check=True)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.write_bytes(b"x" * DISK)


def shut_down(sidecar: Sidecar, let_go: Path) -> None:
    """Have it shut down, and then the tool end that it waits for."""
    sidecar.signal()
    sidecar.logged(event="draining")
    let_go.touch()


async def interrupted(stub: Any, request: pb.SystemRequest, interrupt: Callable[[], object]) -> str:
    """Why a run breaks off that is interrupted once its tool says something."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _until_the_end(stub, request, interrupt)
    return reason_of(caught.value)


async def _until_the_end(stub: Any, request: pb.SystemRequest, interrupt: Callable[[], object]) -> None:
    is_done = False
    async for each in stub.StreamRun(pb.StreamRunRequest(request=request), timeout=TIMEOUT_S):
        if each.HasField("tool_update") and not is_done:
            is_done = True
            interrupt()


async def test_a_plan_that_a_shutdown_interrupts_goes_on_with_the_steps_that_are_left(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    note, let_go = {"path": str(tmp_path / "notes/a"), "text": "one"}, tmp_path / "signals/let-go"
    steps = [
        {"name": "note", "kind": "tool", "tool": "note", "arguments": note},
        {"name": "wait", "kind": "tool", "tool": "hold", "arguments": {"path": str(let_go)}, "after": ["note"]},
        {"name": "say", "kind": "infer", "prompt": "Say it.", "after": ["wait"]},
    ]
    plan = json.dumps({"steps": steps, "output": {"$from": "say"}})
    request = asked(request_id="plan", mode=pb.MODE_PLAN, plan=pb.PlanOptions(plan_json=plan))
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            assert await interrupted(stub, request, lambda: shut_down(sidecar, let_go)) == "DRAINING"
        assert sidecar.wait() == 0
    assert scripted_model.requests() == []
    scripted_model.says("Said.")
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:
        async with runs_of(sidecar) as stub:
            response = await run(stub, request)
    assert (response.state, response.content or json.loads(response.output_json)) == ("COMPLETE", "Said.")
    assert (tmp_path / "notes/a").read_text() == "one\n"


async def test_whoever_has_much_to_read_of_a_run_yet_is_told_that_a_shutdown_interrupts_it(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path
) -> None:
    let_go = tmp_path / "signals/let-go"
    held = {"path": str(let_go), "updates": UPDATES}
    steps = [
        {"name": "wait", "kind": "tool", "tool": "hold", "arguments": held},
        {"name": "say", "kind": "infer", "prompt": "Say it.", "after": ["wait"]},
    ]
    plan = pb.PlanOptions(plan_json=json.dumps({"steps": steps, "output": {"$from": "say"}}))
    request = pb.StreamRunRequest(request=asked(request_id="plan", mode=pb.MODE_PLAN, plan=plan))
    begun, said = 0, asyncio.Event()
    with model_sidecar(scripted_model, tmp_path, at=state) as sidecar:

        async def follow() -> str:
            nonlocal begun
            try:
                async for each in stub.StreamRun(request, timeout=TIMEOUT_S):
                    if each.tool_update.sequence == UPDATES:
                        said.set()
                    if each.HasField("started"):
                        begun += 1
                        if begun == FOLLOWERS + 1:
                            shut_down(sidecar, let_go)
            except grpc.aio.AioRpcError as error:
                return reason_of(error)
            return "ended without a word"

        async with runs_of(sidecar) as stub:
            streams = [asyncio.create_task(follow())]
            await asyncio.wait_for(said.wait(), TIMEOUT_S)
            streams += [asyncio.create_task(follow()) for _ in range(FOLLOWERS)]
            assert await asyncio.gather(*streams) == ["DRAINING"] * len(streams)
        assert sidecar.wait() == 0


async def test_a_run_whose_journal_cannot_be_written_goes_on_once_it_can(
    scripted_model: ScriptedModel, tmp_path: Path, state: Path, small_disk: Path
) -> None:
    note, let_go = {"path": str(tmp_path / "notes/a"), "text": "one"}, tmp_path / "signals/let-go"
    scripted_model.calls(("note", note))
    scripted_model.calls(("hold", {"path": str(let_go)}))
    scripted_model.says("Noted.")
    server = f'state_dir = "{small_disk}"\nlisten = ["unix:{state}/fh.sock"]\n'
    request = asked(request_id="full")
    with model_sidecar(scripted_model, tmp_path, at=state, server=server) as sidecar:
        async with runs_of(sidecar) as stub, sidecar.channel() as channel:
            ballast = small_disk / "ballast"
            assert await interrupted(stub, request, lambda: (fill(ballast), let_go.touch())) == "JOURNAL_UNAVAILABLE"
            ballast.unlink()
            asking = health_pb2.HealthCheckRequest(service="journal")
            async with asyncio.timeout(TIMEOUT_S):
                while (await HealthStub(channel).Check(asking)).status != SERVING:  # noqa: ASYNC110 - nothing else tells
                    await asyncio.sleep(0.1)
            scripted_model.clear()
            scripted_model.says("Noted.")
            response = await run(stub, request)
    assert (response.state, response.content) == ("COMPLETE", "Noted.")
    assert (tmp_path / "notes/a").read_text() == "one\n", "what had an effect is on record, and not repeated"
