"""Pools of shared workers, when something comes at the wrong moment."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.tool import Reason
from fumehood_server.model.worker import CancelReason
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.pools.shared import Pool

from tests.faults.bench import BOUND_S, SETTINGS, Bench, Updates, ended, invocation

from .test_pools import bounded, pools_with


async def test_closing_that_is_cancelled_kills_the_starts_too() -> None:
    logs = LogSink()
    pools = Pools(logs, SETTINGS)
    bench = Bench(pools, logs)
    busy = await bounded(pools.acquire(bench.honest_spec))
    updates = Updates()
    handle = busy.worker.invoke(invocation("slow", updates))
    await bounded(updates.first())
    waiting = asyncio.ensure_future(pools.acquire(bench.spec("never_ready")))
    async with asyncio.timeout(BOUND_S):
        while not bench.left():  # noqa: ASYNC110 - a process of the kernel's
            await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(pools.close(BOUND_S))
    await asyncio.sleep(0.05)
    closing.cancel()
    await asyncio.wait((closing, waiting))
    await bounded(ended(handle))
    try:
        async with asyncio.timeout(2):
            while bench.left():  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)
    finally:
        await pools.close(0.0)


async def test_worker_of_a_retired_pool_that_nobody_waits_for_any_more_is_ended() -> None:
    async with pools_with() as bench:
        spec = bench.spec()
        waiting = asyncio.ensure_future(bench.pools.acquire(spec))
        async with asyncio.timeout(BOUND_S):
            while not bench.left():  # noqa: ASYNC110 - a process of the kernel's
                await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await bench.pools.retire(frozenset({spec.key}))
        async with asyncio.timeout(5):
            while bench.left():  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0.01)


async def test_idle_worker_that_takes_its_time_to_end_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = Pool._end_idle

    def counted(pool: Pool) -> None:
        nonlocal looks
        looks += 1
        look(pool)

    monkeypatch.setattr(Pool, "_end_idle", counted)
    async with pools_with(idle_s=0.1, shutdown_grace_s=0.5) as bench:
        lease = await bounded(bench.pools.acquire(bench.spec()))
        updates = Updates()
        handle = lease.worker.invoke(invocation("stops_itself", updates))
        await asyncio.sleep(0.05)
        lease.release()
        await bounded(asyncio.wait((lease.worker.dead,)))
        del handle
    assert looks < 10


async def test_caller_whose_start_failed_beside_a_busy_worker_is_served_after_the_backoff() -> None:
    answers: list[Reason | None] = [None, Reason("plugin_changed", "for a moment"), None]

    async def verify(_: WorkerSpec) -> Reason | None:
        return answers.pop(0)

    logs = LogSink()
    async with Pools(logs, dataclasses.replace(SETTINGS, backoff_first_s=0.1), verify=verify) as pools:
        bench = Bench(pools, logs)
        spec = dataclasses.replace(bench.spec(max_workers=2), max_concurrent_calls=1)
        lease = await bounded(pools.acquire(spec))
        updates = Updates()
        handle = lease.worker.invoke(invocation("slow", updates))
        await bounded(updates.first())
        async with asyncio.timeout(5):
            second = await pools.acquire(spec)
        second.release()
        assert not answers, "control: one start was refused"
        handle.cancel(CancelReason.CALLER)
        await bounded(ended(handle))
        lease.release()
