"""Starts that are cancelled, the tasks among them that have not taken their first step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fumehood_sandbox import PythonModule
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.tool import Isolation
from fumehood_server.workers import LogSink, Pools

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, children

ITERATIONS = range(8)
"""Of the loop, from the first caller to the close: the caller's, the pool's, the start's, the launch's first ones."""
SERVED = (0, 1, 3, 6)
"""Of them, where each starts a process that serves."""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@pytest.fixture(params=["shared", "launched", "forked"])
def spec(request: pytest.FixtureRequest, bench: Bench) -> WorkerSpec:
    if request.param == "shared":
        return bench.spec(isolation=Isolation.PROCESS)
    spec = bench.spec()
    assert isinstance(spec.program, PythonModule)
    return spec if request.param == "forked" else replace(spec, program=replace(spec.program, forks=0))


async def test_pool_that_is_closed_as_its_first_caller_comes_leaves_nothing(spec: WorkerSpec) -> None:
    before = children()
    for iterations in ITERATIONS:
        logs = LogSink()
        async with asyncio.timeout(BOUND_S), Pools(logs, SETTINGS) as pools:
            caller = asyncio.create_task(pools.acquire(spec))
            for _ in range(iterations):
                await asyncio.sleep(0)
            await pools.close(0.0)
            with pytest.raises(WorkerUnavailableError, match="shut"):
                await caller
            assert pools.workers() == (), iterations
            assert children() == before, iterations


async def test_pool_whose_closing_is_cancelled_as_its_first_caller_comes_leaves_nothing(spec: WorkerSpec) -> None:
    before = children()
    for iterations in ITERATIONS:
        logs = LogSink()
        async with asyncio.timeout(BOUND_S), Pools(logs, SETTINGS) as pools:
            caller = asyncio.create_task(pools.acquire(spec))
            for _ in range(iterations):
                await asyncio.sleep(0)
            closing = asyncio.create_task(pools.close(0.0))
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait((closing, caller))
            assert isinstance(caller.exception(), WorkerUnavailableError), iterations
        assert pools.workers() == (), iterations
        assert children() == before, iterations


async def test_pool_that_is_retired_as_its_first_caller_comes_serves_it(bench: Bench, spec: WorkerSpec) -> None:
    before = children()
    for iterations in SERVED:
        caller = asyncio.create_task(bench.run("result = 1", spec=spec))
        for _ in range(iterations):
            await asyncio.sleep(0)
        await bench.pools.retire(frozenset({spec.key}))
        assert await caller == 1, iterations
        await bench.pools.retire(frozenset({spec.key}))
        await bench.until(lambda: not bench.pools.workers())
        await bench.until(lambda: children() == before)


async def test_caller_who_gives_up_at_once_leaves_a_pool_that_serves_the_next(bench: Bench, spec: WorkerSpec) -> None:
    for iterations in SERVED:
        caller = asyncio.create_task(bench.pools.acquire(spec))
        for _ in range(iterations):
            await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait((caller,))
        if iterations:
            assert await bench.run("result = 1", spec=spec) == 1, iterations
        await bench.pools.retire(frozenset({spec.key}))
        await bench.until(lambda: not bench.pools.workers())
