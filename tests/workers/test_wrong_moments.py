"""Pools of shared workers, when something comes at the wrong moment."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.tool import Reason
from fumehood_server.model.worker import CancelReason
from fumehood_server.workers import LogSink, Pools

from tests.faults.bench import BOUND_S, POLL_S, SETTINGS, Bench, Updates, ended, invocation

from .test_pools import bounded, pools_with


async def until_some_process(bench: Bench) -> None:
    """Until the plugin under test has a process."""
    async with asyncio.timeout(BOUND_S):
        while not bench.left():  # noqa: ASYNC110 - a process of the kernel's, which tells nobody of its start
            await asyncio.sleep(POLL_S)


async def until_no_process(bench: Bench) -> None:
    async with asyncio.timeout(BOUND_S):
        while bench.left():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(POLL_S)


async def test_closing_that_is_cancelled_kills_the_starts_too() -> None:
    async with pools_with() as bench:
        pools = bench.pools
        busy = await bounded(pools.acquire(bench.honest_spec))
        updates = Updates()
        handle = busy.worker.invoke(invocation("slow", updates))
        await updates.first()
        waiting = asyncio.ensure_future(pools.acquire(bench.spec("never_ready")))
        await until_some_process(bench)
        closing = asyncio.ensure_future(pools.close(BOUND_S))
        await asyncio.wait((closing,), timeout=0)
        assert not closing.done(), "control: it waits for the call"
        closing.cancel()
        await asyncio.wait((closing, waiting))
        await ended(handle)
        await until_no_process(bench)


async def test_worker_of_a_retired_pool_that_nobody_waits_for_any_more_is_ended() -> None:
    async with pools_with() as bench:
        spec = bench.spec()
        waiting = asyncio.ensure_future(bench.pools.acquire(spec))
        await until_some_process(bench)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await bench.pools.retire(frozenset({spec.key}))
        await until_no_process(bench)


async def test_idle_worker_that_takes_its_time_to_end_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    iterations = 0
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined] # asyncio counts them nowhere
    select = selector.select

    def counted(timeout: float | None = None) -> object:
        nonlocal iterations
        iterations += 1
        return select(timeout)

    async with pools_with(idle_s=0.1, shutdown_grace_s=0.5) as bench:
        lease = await bounded(bench.pools.acquire(bench.spec()))
        handle = lease.worker.invoke(invocation("stops_itself"))
        lease.release()
        monkeypatch.setattr(selector, "select", counted)
        await ended(handle)
        monkeypatch.undo()
    assert 0 < iterations < 100


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
        await updates.first()
        async with asyncio.timeout(BOUND_S):
            second = await pools.acquire(spec)
        second.release()
        assert not answers, "control: one start was refused"
        await handle.end(CancelReason.CALLER)
        lease.release()


async def test_pool_whose_only_start_failed_is_forgotten_with_the_failure() -> None:
    async with pools_with(backoff_first_s=0.5, backoff_last_s=0.5) as bench:
        await bench.start_error(bench.spec("exits_at_start"))
        assert len(bench.pools._pool_tasks) == 1, "control: the failure is remembered"
        async with asyncio.timeout(BOUND_S):
            while bench.pools._pool_tasks:  # noqa: ASYNC110 - the pools tell nobody that they are empty
                await asyncio.sleep(POLL_S)
