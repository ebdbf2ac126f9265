"""What a zygote is refused for, and what becomes of it when a call goes wrong."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fumehood_sandbox import Limits
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason, WorkerState
from fumehood_server.workers.pools.interface import PoolContext
from fumehood_server.workers.pools.zygote import started_zygote

from tests.faults.bench import until_dead

from .bench import BOUND_S, FOLDER, SETTINGS, Bench, children, ended, fork_supervisors, invocation

pytestmark = pytest.mark.promise("S702")


def _hostile(folder: Path, deed: str) -> Path:
    shutil.copy(FOLDER / "hostile.py", folder)
    (folder / "deed").write_text(deed)
    return folder


@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        ("thread", "1 other threads were started"),
        ("process", "1 other processes were left"),
        ("orphan", "1 other processes were left"),
        ("memory", "memory was shared"),
        ("memory that is read-only for now", "memory was shared"),
        ("System V memory", "memory was shared"),
        ("socket", "was left open"),
        ("pipe", "was left open"),
        ("memfd", "was left open"),
        ("file with tabs in its name", "was left open"),
        ("file", "keeps a file open for writing"),
        ("file in shm", "keeps a file open for writing"),
    ],
)
async def test_import_that_leaves_what_calls_would_share_is_refused(
    bench: Bench, tmp_path: Path, deed: str, problem: str
) -> None:
    with pytest.raises(WorkerUnavailableError) as caught:
        await bench.run("x", spec=bench.spec("hostile", folder=_hostile(tmp_path, deed)))
    assert caught.value.error.code is Code.CONFIG_PLUGIN_INVALID
    assert caught.value.error.details["reason"] == "zygote_refused"
    assert problem in caught.value.error.message


@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        ("memory that is writable later", "memory was shared after the zygote was approved"),
        ("helper of each call", "a process for a call started others before its call came"),
    ],
)
async def test_child_that_has_more_than_its_zygote_was_approved_with_gets_no_call(
    bench: Bench, tmp_path: Path, deed: str, problem: str
) -> None:
    with pytest.raises(WorkerUnavailableError) as caught:
        await bench.run("x", spec=bench.spec("hostile", folder=_hostile(tmp_path, deed)))
    assert problem in caught.value.error.message


@pytest.mark.parametrize("deed", ["nothing", "file mapped read-only"])
async def test_import_that_leaves_nothing_to_write_to_is_not_refused(bench: Bench, tmp_path: Path, deed: str) -> None:
    assert await bench.run("x", spec=bench.spec("hostile", folder=_hostile(tmp_path, deed))) == "x"


async def test_calls_share_a_zygote_until_one_crashes(bench: Bench) -> None:
    spec = bench.spec()
    await bench.run("result = 1", spec=spec)
    first = bench.zygotes(spec)
    await bench.run("result = 2", spec=spec)
    assert bench.zygotes(spec) == first, "control: a call that ends well keeps its zygote"
    for end in ("os._exit(3)", "os.abort()", "import ctypes; ctypes.string_at(0)"):
        crashed = await bench.call(f"import os; {end}", spec=spec)
        assert crashed.error is not None
        assert crashed.error.code is Code.TOOL_UNAVAILABLE
        assert await bench.run("result = 3", spec=spec) == 3
        last = first
        await bench.until(lambda last=last: not last & bench.zygotes(spec))  # it may still be ending beside the next
        first = bench.zygotes(spec)
        assert len(first) == 1


async def test_crash_does_not_end_a_call_beside(bench: Bench) -> None:
    spec = bench.spec()
    lease = await bench.pools.acquire(spec)
    handle = lease.worker.invoke(invocation("ctx.sleep(0.5); result = 'still here'"))
    crashed = await bench.call("import os; os._exit(1)", spec=spec)
    assert crashed.error is not None
    result = await ended(handle)
    lease.release()
    assert (result.error, result.details_json) == (None, '"still here"')


async def test_call_that_ignores_its_end_is_killed_with_all_that_it_started(bench: Bench) -> None:
    spec = bench.spec()
    code = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    there, here = os.pipe()
    call = os.getpid()
    for number in range(3):
        if os.getpid() == call and os.fork() == 0:
            os.setsid()
            os.fork()
            os.write(here, b"x")
    if os.getpid() == call:
        for number in range(6):
            os.read(there, 1)
        ctx.update("ready")
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
    """
    async with bench.started(code, spec=spec) as (handle, worker):
        before = bench.processes_of(spec)
        assert len(before) >= 8, "control: the call and what it started are there"
        result = await handle.end(CancelReason.DEADLINE)
        assert result.error is not None
        assert result.error.code is Code.TOOL_TIMEOUT
        assert result.error.details["ended_by"] == "sigkill"
        await until_dead(worker)
    await bench.run("result = 1", spec=spec)
    await bench.until(lambda: not before & bench.processes_of(spec))


async def test_death_of_the_zygote_ends_its_calls_and_the_next_call_gets_another(bench: Bench) -> None:
    spec = bench.spec()
    await bench.run("result = 0", spec=spec)
    async with bench.started("ctx.update('ready'); ctx.sleep(60)", spec=spec) as (handle, worker):
        before = bench.processes_of(spec)
        (zygote,) = bench.zygotes(spec)
        os.kill(zygote, signal.SIGKILL)
        result = await ended(handle)
        assert result.error is not None
        assert result.error.code is Code.TOOL_UNAVAILABLE
        await until_dead(worker)
    await bench.until(lambda: not before & bench.processes_of(spec))
    assert await bench.run("result = 1", spec=spec) == 1


async def test_zygote_that_is_heard_to_be_dead_before_its_children_leaves_no_fork_supervisor(bench: Bench) -> None:
    spec = bench.spec()
    async with bench.started("ctx.update('ready'); ctx.sleep(60)", spec=spec) as (handle, worker):
        assert len(fork_supervisors()) == 1, "control: it has one"
        (zygote,) = bench.zygotes(spec)
        # As long as somebody could write to its stdout, the end of the child isn't told.
        held = os.open(f"/proc/{worker.info.process_id}/fd/1", os.O_WRONLY)
        try:
            os.kill(zygote, signal.SIGKILL)
            await bench.until(lambda: not is_running(zygote))
            assert worker.state is not WorkerState.DEAD, "control: the child is heard of later"
        finally:
            os.close(held)
        await ended(handle)
        await until_dead(worker)
    await bench.until(lambda: not fork_supervisors())


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("times", [1, 3])
async def test_start_that_is_cancelled_again_and_again_leaves_no_process(bench: Bench, times: int) -> None:
    spec = bench.spec()
    logs = bench.logs.of(spec.plugin)
    before = children()
    context = PoolContext(
        spec=spec, log=logs, settings=SETTINGS, ids=itertools.count(), verify=None, plugin_requests=None
    )

    async def hold() -> None:
        async with started_zygote(context):
            await asyncio.get_running_loop().create_future()

    start = asyncio.ensure_future(hold())
    await bench.until(lambda: bool(fork_supervisors()))
    for _ in range(times):
        start.cancel()
        await asyncio.sleep(0)
    await asyncio.wait((start,), timeout=BOUND_S)
    assert start.cancelled()
    assert children() == before


@pytest.mark.parametrize("cgroups", [True, False])
async def test_receipt_of_a_call_names_its_own_limit_of_processes(bench: Bench, cgroups: bool) -> None:
    spec = bench.spec(limits=Limits(processes=20))
    spec = replace(spec, key=f"{spec.key}:{cgroups}", policy=replace(spec.policy, cgroups=cgroups))
    lease = await bench.pools.acquire(spec)
    details = {layer.name: layer.detail for layer in lease.worker.receipt.layers}
    lease.release()
    assert details["rlimits"].count("nproc=") == 1
    assert "nproc=20, " in details["rlimits"]
    look = "import resource; result = resource.getrlimit(resource.RLIMIT_NPROC)[1]"
    assert await bench.run(look, spec=spec) == 20
    zygotes = [info.receipt for info in bench.pools.workers() if "zygote" in info.worker_id]
    others = [layer.detail for receipt in zygotes if receipt for layer in receipt.layers if layer.name == "rlimits"]
    assert [f"nproc={20 * 11}, " in other for other in others] == [not cgroups], "control: the zygote's is another"


async def test_closing_leaves_no_process(bench: Bench) -> None:
    spec = bench.spec()
    await bench.run("result = 1", spec=spec)
    before = bench.processes_of(spec)
    assert before, "control: there are some"
    await bench.pools.close(0.0)
    assert not before & bench.processes_of(spec)
