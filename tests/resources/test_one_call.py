"""Limits of a process that serves one call: they are that call's alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fumehood_sandbox.cgroup import cgroups
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Isolation
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.process.worker import ProcessWorker

from tests.faults.bench import BOUND_S, ended, error_of, invocation

from .support import LIMITS, MIB, SETTINGS, Hood, spec_of, value_in

pytestmark = pytest.mark.promise("S607")


@pytest.fixture
async def hood() -> AsyncIterator[Hood]:
    """Each call of the hostile plugin has a process that was forked for it."""
    spec = replace(spec_of(cpu_s=2, isolation=Isolation.CALL), max_concurrent_calls=4)
    async with asyncio.timeout(BOUND_S * 2), Pools(LogSink(), SETTINGS) as pools:
        yield Hood(pools, LogSink(), spec, spec_of(identity="honest"))


async def test_a_memory_bomb_ends_its_own_call_alone(hood: Hood) -> None:
    await hood.call("echo", text="warm")
    beside = asyncio.ensure_future(hood.call("spin", seconds=0.5))
    error = error_of(await hood.call("hold", mib=600))
    assert error.code is Code.TOOL_RESOURCE_EXHAUSTED
    assert (error.details["limit"], error.details["usage"]) == ("memory_bytes", LIMITS.memory_bytes)
    assert "shared" not in error.details
    assert value_in(await beside) == 0.5
    # Together more than one may hold, each less.
    held = await asyncio.gather(*(hood.call("hold", mib=100) for _ in range(4)))
    assert [value_in(result) for result in held] == [100] * 4
    await hood.honest()


async def test_a_fork_bomb_and_a_busy_loop_end_their_own_calls_alone(hood: Hood) -> None:
    await hood.call("echo", text="warm")
    bombs = asyncio.gather(hood.call("fork", count=60), hood.call("spin", seconds=30))
    assert value_in(await hood.call("fork", count=8)) == 8
    await hood.honest()
    limits = [error_of(result).details["limit"] for result in await bombs]
    assert limits == ["processes", "cpu_s"]


async def test_usage_of_a_short_call_is_known_where_no_cgroup_counts(hood: Hood) -> None:
    spec = replace(hood.spec, key="uncounted", policy=spec_of(cgroups=False).policy)
    lease = await hood.pools.acquire(spec)
    handle = lease.worker.invoke(invocation("echo", arguments_json='{"text": "x"}'))
    result = await ended(handle)
    used = result.used
    assert (result.error, used is not None and used.source) == (None, "proc")
    assert used is not None
    assert used.peak_memory_bytes > MIB
    assert used.cpu_s > 0
    lease.release()


async def test_usage_is_that_of_the_call(hood: Hood) -> None:
    used = []
    for tool, arguments in (("hold", '{"mib": 100}'), ("echo", '{"text": "x"}'), ("spin", '{"seconds": 0.3}')):
        lease = await hood.pools.acquire(hood.spec)
        handle = lease.worker.invoke(invocation(tool, arguments_json=arguments))
        result = await ended(handle)
        assert result.error is None
        used.append(result.used)
        lease.release()
    hold, echo, spin = used
    assert all(each.source.startswith("cgroup") for each in used)
    assert hold.peak_memory_bytes > 100 * MIB > echo.peak_memory_bytes > 0
    assert echo.cpu_s < 0.2
    assert spin.cpu_s > 0.29


async def test_call_is_told_nothing_of_what_the_call_before_used_in_the_same_cgroup(hood: Hood) -> None:
    """A later call's cgroup is often one in which an earlier call ran."""
    arguments = {"hold": '{"mib": 64}', "echo": '{"text": "x"}'}
    places: dict[str, list[str]] = {"hold": [], "echo": []}
    for number in range(22):
        # Ever longer gaps, since cgroups go round: a regular one might never meet the others'.
        tool = "hold" if number in (0, 1, 3, 6, 10, 15, 21) else "echo"
        lease = await hood.pools.acquire(hood.spec)
        handle = lease.worker.invoke(invocation(tool, arguments_json=arguments[tool]))
        assert isinstance(lease.worker, ProcessWorker)
        leaf = lease.worker._process.leaf
        assert leaf is not None
        places[tool].append(leaf._name)
        result = await ended(handle)
        assert result.error is None
        lease.release()
        assert result.used is not None
        if tool == "hold":
            assert result.used.peak_memory_bytes > 64 * MIB
        else:
            assert result.used.peak_memory_bytes < 16 * MIB
    if cgroups().joining_thread is not None:
        assert set(places["hold"]) & set(places["echo"]), "control: cgroups are used again"
