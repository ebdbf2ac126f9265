"""What is left of a call in a process of its own once it is over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
from fumehood_server.workers import LogSink, Pools

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, ended, invocation


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("code", ["out = 1", "raise ValueError('no')", "import os\nos._exit(3)"])
async def test_worker_of_one_call_goes_without_the_garbage_collector(bench: Bench, code: str) -> None:
    spec = bench.spec()
    lease = await bench.pools.acquire(spec)
    worker = weakref.ref(lease.worker)
    result = await ended(lease.worker.invoke(invocation(code)))
    assert (result.error is None) == (code == "out = 1")
    assert worker() is not None
    lease.release()
    del lease
    await bench.until(lambda: worker() is None)
