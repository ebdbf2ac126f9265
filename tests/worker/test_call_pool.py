"""Pools of processes for one call each, while one of them starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import PythonModule
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.worker import LogSink, Pools

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, children

_IMPORT_S = 1.0
_SLOW = f'''
import time
from fumehood_sdk import Plugin

time.sleep({_IMPORT_S})
plugin = Plugin("slow", version="1.0.0")


@plugin.tool(side_effects="none", isolation="call")
def run(code: str) -> str:
    """Say the same."""
    return code
'''


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@pytest.fixture(params=["forked", "launched"])
def slow(request: pytest.FixtureRequest, bench: Bench, tmp_path: Path) -> WorkerSpec:
    """A plugin that takes a while to start, and whether its processes are forked."""
    (tmp_path / "slow.py").write_text(_SLOW)
    spec = bench.spec("slow", folder=tmp_path)
    assert isinstance(spec.program, PythonModule)
    return spec if request.param == "forked" else replace(spec, program=replace(spec.program, forks=0))


async def test_start_that_takes_longer_than_a_pool_may_be_idle_is_waited_for(slow: WorkerSpec) -> None:
    """As that of a plugin that could not be started for so long, and now can."""
    settings = replace(SETTINGS, idle_s=_IMPORT_S / 4)
    async with asyncio.timeout(BOUND_S), Pools(LogSink(), settings) as pools:
        bench = Bench(pools, LogSink())
        for _ in range(2):
            assert await bench.run("x", spec=slow) == "x"
            await bench.until(lambda: not bench.pools.workers())  # control: idle ones are ended


async def test_pool_that_is_retired_while_nobody_waits_for_its_start_leaves_no_process(
    bench: Bench, slow: WorkerSpec
) -> None:
    before = children()
    waiting = asyncio.ensure_future(bench.pools.acquire(slow))
    await bench.until(lambda: children() > before)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await bench.pools.retire(frozenset({slow.key}))
    await bench.until(lambda: children() == before)
    assert await bench.run("x", spec=slow) == "x"
