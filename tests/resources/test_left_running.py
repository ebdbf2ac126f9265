"""Processor time that a call's leftovers use when no call is under way: it is nobody's, and it has an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import psutil
import pytest
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.process.worker import ProcessWorker

from tests.faults.bench import BOUND_S, until_dead

from .support import SETTINGS, Hood, spec_of, value_in

pytestmark = pytest.mark.promise("S608")

NS = 1_000_000_000
LEFT = [("thread", 0.0), ("thread", 0.5)]
"""What is left running, and after how long a rest. A rest is longer than the first looks are apart."""
REPLACED = ("since its last call ended", "as much processor time as one call may")
"""By which of two limits. The second one comes first where the process's start alone took half a second, as under qemu.
"""


@pytest.fixture(params=[True, False], ids=["cgroups", "no cgroups"])
async def hood(request: pytest.FixtureRequest) -> AsyncIterator[Hood]:
    """A second of processor time for each call, and half of that between two of them."""
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        spec = spec_of(cgroups=request.param, cpu_s=1, memory_bytes=1 << 30)
        yield Hood(pools, logs, spec, spec_of(identity="honest"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - nothing tells how far another process has come
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("how", "rest"), LEFT)
async def test_worker_that_a_call_left_busy_is_ended_though_nobody_calls(hood: Hood, how: str, rest: float) -> None:
    calm, busy = await worker_of(hood, honest=True), await worker_of(hood)
    await hood.honest()
    assert value_in(await hood.call("leave", how=how, seconds=60, rest=rest)) == how
    await until_dead(busy)
    said = [line.message for line in hood.logs.of("hostile").last(100)]
    assert any(replaced in message for message in said for replaced in REPLACED), said
    assert not busy.life.failed
    assert calm.state is WorkerState.READY, "control: one that rests between calls stays"
    await hood.honest()
    assert calm.table.served == 2
    assert value_in(await hood.call("echo", text="x")) == "x"


@pytest.mark.parametrize(("how", "rest"), LEFT)
async def test_next_call_does_not_pay_for_what_was_used_before_it_began(hood: Hood, how: str, rest: float) -> None:
    worker = await worker_of(hood)
    before_ns = worker._meter.cpu_ns()
    assert value_in(await hood.call("leave", how=how, seconds=0.35, rest=rest)) == how
    await until(lambda: _used_by(worker) - before_ns > 0.35 * NS)
    assert value_in(await hood.call("spin", seconds=0.75)) == 0.75
    assert worker.table.served == 2, "control: it was this process that served it"


@pytest.mark.parametrize(("how", "rest"), [("child", 0.0), ("late child", 0.5)])
async def test_process_that_a_call_left_is_ended_when_no_call_is_under_way(hood: Hood, how: str, rest: float) -> None:
    worker = await worker_of(hood)
    own = worker._process.pids()
    beside = asyncio.ensure_future(hood.call("wait_for_child", seconds=1.0))
    # Not so much processor time that the kernel ends it by RLIMIT_CPU before the other call is over.
    assert value_in(await hood.call("leave", how=how, seconds=0.2, rest=rest)) == how
    # While a call runs, whose it is can't be known: the child of the other one is there until that is over.
    assert value_in(await beside) == "its child has ended by itself"
    await until(lambda: any("left running are ended" in line.message for line in hood.logs.of("hostile").last(100)))
    await until(lambda: [pid for pid in worker._process.pids() if _runs(pid)] == own)
    assert value_in(await hood.call("echo", text="x")) == "x"
    assert worker.state is WorkerState.READY, "control: the worker stays"


async def test_worker_full_of_dead_processes_is_replaced_before_a_call_pays_for_them(hood: Hood) -> None:
    worker, most = await worker_of(hood), hood.spec.policy.limits.processes // 4
    for number in range(most + 1):
        assert worker.state is WorkerState.READY, f"control: it stays with {number} of them"
        assert value_in(await hood.call("leave", how="child", seconds=0.0)) == "child"
        await until(lambda: worker._limits._idle_interval_s is not None)
    await until_dead(worker)
    said = [line.message for line in hood.logs.of("hostile").last(100)]
    assert any(f"has {most + 1} dead processes" in message for message in said), said
    assert not worker.life.failed
    assert value_in(await hood.call("echo", text="x")) == "x"


async def test_process_that_a_call_left_goes_on_in_a_server_that_keeps_its_state(hood: Hood) -> None:
    """Control to the one above: `one_process`, which is for servers that keep a browser, say."""
    spec = replace(hood.spec, all_levels=True)
    lease = await hood.pools.acquire(spec)
    lease.release()
    own = set(lease.worker._process.pids())
    assert value_in(await hood.call("leave", spec=spec, how="child", seconds=0.0, rest=0.0)) == "child"
    left = set(lease.worker._process.pids()) - own
    assert left
    await until(lambda: lease.worker._limits._idle_interval_s is not None)
    assert value_in(await hood.call("echo", spec=spec, text="x")) == "x"
    assert all(_runs(pid) for pid in left)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _used_by(worker: ProcessWorker) -> int:
    """Read as a call's start does it, but with all processes that there are."""
    meter = worker._meter
    return meter.cpu_ns() if meter.counts_time else _clocks(worker._process.pids())


def _clocks(pids: list[int]) -> int:
    return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in pids)


async def worker_of(hood: Hood, *, honest: bool = False) -> ProcessWorker:
    lease = await hood.pools.acquire(hood.honest_spec if honest else hood.spec)
    lease.release()
    return lease.worker
