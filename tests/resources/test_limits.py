"""Each limit reached by the SDK's plugin, beside the same thing just below it and an honest plugin meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from fumehood_sandbox import Level
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import InvocationResult
from fumehood_server.workers import LogSink, Pools

from tests.faults.bench import BOUND_S, ended, error_of, invocation, until_dead

from .support import LIMITS, MIB, SETTINGS, Hood, spec_of, value_in

pytestmark = pytest.mark.promise("S605")


@pytest.fixture(params=[True, False], ids=["cgroups", "no cgroups"])
async def hood(request: pytest.FixtureRequest) -> AsyncIterator[Hood]:
    """Both ways: bounded by a cgroup, and by what stands in for one."""
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Hood(pools, logs, spec_of(cgroups=request.param), spec_of(identity="honest"))


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[(cgroups, isolation) for isolation in Isolation for cgroups in (True, False)],
    ids=lambda each: f"{'cgroups' if each[0] else 'no cgroups'}-{each[1]}",
)
async def each_hood(request: pytest.FixtureRequest) -> AsyncIterator[Hood]:
    """The same, in a process that serves many calls and in one of the call's own. Shared: each test has its bombs."""
    cgroups, isolation = request.param
    logs = LogSink()
    async with Pools(logs, SETTINGS) as pools:
        yield Hood(pools, logs, spec_of(cgroups=cgroups, isolation=isolation), spec_of(identity="honest"))


def reached(result: InvocationResult, limit: str, unit: str) -> dict[str, Any]:
    """The details of the error that names this limit."""
    error = error_of(result)
    assert error.code is Code.TOOL_RESOURCE_EXHAUSTED, error
    assert not error.retryable
    details = dict(error.details)
    assert (details["limit"], details["unit"]) == (limit, unit)
    assert details["usage"] >= details["value"] * 0.9
    assert limit in error.message
    assert "fumehood.toml" in error.message
    return details


MEMORY_BELOW, MEMORY_ABOVE = {"mib": 100}, {"mib": 600}
SHM = "/dev/shm"  # noqa: S108 - the sandbox's own
CASES = [
    ("fork", {"count": 12}, {"count": 40}, "processes", "processes"),
    ("threads", {"count": 12}, {"count": 40}, "processes", "processes"),
    ("hold", MEMORY_BELOW, MEMORY_ABOVE, "memory_bytes", "bytes"),
    ("fill", {"mib": 12}, {"mib": 20}, "scratch_bytes", "bytes"),
    ("fill", {"mib": 12, "folder": SHM}, {"mib": 20, "folder": SHM}, "scratch_bytes", "bytes"),
    ("make_files", {"count": 1000}, {"count": 5000}, "scratch_files", "files"),
    ("big_file", {"mib": 7}, {"mib": 9}, "file_size_bytes", "bytes"),
    ("open_files", {"count": 40}, {"count": 80}, "open_files", "files"),
    ("output", {"size": MIB // 4}, {"size": 5 * MIB}, "output_bytes", "bytes"),
    ("flood", {"size": MIB // 4}, {"size": 4 * MIB}, "log_bytes_per_second", "bytes/s"),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("tool", "below", "above", "limit", "unit"), CASES)
async def test_who_reaches_a_limit_is_told_which_and_who_stays_below_is_served(  # noqa: PLR0917 - a table's columns
    each_hood: Hood, tool: str, below: dict[str, Any], above: dict[str, Any], limit: str, unit: str
) -> None:
    hood = each_hood
    if tool == "threads":
        # Each thread reserves 72 MiB of address space, which is what bounds memory without a cgroup.
        spec = spec_of(cgroups=hood.spec.policy.cgroups, memory_bytes=8192 * MIB, isolation=hood.spec.isolation)
        hood = replace(hood, spec=spec)
    assert (await hood.call(tool, **below)).error is None
    bomb = asyncio.ensure_future(hood.call(tool, **above))
    await hood.honest()
    reached(await bomb, limit, unit)
    await hood.honest()
    # What it left behind is gone with its process: the next call finds all of it free again.
    assert (await hood.call(tool, **below)).error is None


async def test_memory_that_is_only_reserved_is_not_counted_by_a_cgroup(hood: Hood) -> None:
    result = await hood.call("reserve", mib=8192)
    if hood.spec.policy.cgroups:
        assert value_in(result) == 8192
    else:
        reached(result, "memory_bytes", "bytes")


@pytest.mark.asyncio(loop_scope="module")
async def test_memory_of_all_processes_together_is_bounded(each_hood: Hood) -> None:
    hood = each_hood
    limit = hood.spec.policy.limits.memory_bytes // MIB
    assert value_in(await hood.call("hold_in_children", mib=limit // 16, children=4)) == 4
    bomb = asyncio.ensure_future(hood.call("hold_in_children", mib=limit // 3, children=8))
    await hood.honest()
    # Also where the kernel has killed a child alone, for which the tool waits for ever.
    reached(await bomb, "memory_bytes", "bytes")


@pytest.mark.asyncio(loop_scope="module")
async def test_files_in_memory_that_nobody_maps_are_counted(each_hood: Hood) -> None:
    hood = each_hood
    limit = hood.spec.policy.limits.memory_bytes // MIB
    files = limit // 8
    assert value_in(await hood.call("memfd", mib=8, files=files // 2)) == files // 2
    reached(await hood.call("memfd", mib=8, files=files + 8), "memory_bytes", "bytes")


async def test_the_kernels_counters_are_believed_whatever_the_tool_says() -> None:
    async with asyncio.timeout(BOUND_S), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(), spec_of(identity="honest"))
        result = await hood.call("fork_and_shrug", count=40)
        reached(result, "processes", "processes")
        error = error_of(result)
        assert error.caused_by is not None
        assert error.caused_by.details["reason"] == "sorry"
        assert "it did not go well" in error.message
        # Beside a counter that has grown, the next failure is its own.
        assert value_in(await hood.call("fork_and_shrug", count=4)) == 4


async def test_a_memory_bomb_ends_all_calls_that_share_its_process_and_says_so() -> None:
    async with asyncio.timeout(BOUND_S), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(), spec_of(identity="honest"))
        await hood.call("echo", text="warm")
        lease = await pools.acquire(hood.spec)
        beside = lease.worker.invoke(invocation("spin", arguments_json='{"seconds": 30}'))
        details = reached(await hood.call("hold", mib=600), "memory_bytes", "bytes")
        assert details["shared"] is True
        assert details["usage"] == LIMITS.memory_bytes
        assert reached(await ended(beside), "memory_bytes", "bytes") == details
        lease.release()


async def test_a_bomb_in_the_first_call_of_a_process_keeps_nobody_else_waiting() -> None:
    settings = replace(SETTINGS, backoff_first_s=BOUND_S * 10)
    async with asyncio.timeout(BOUND_S), Pools(LogSink(), settings) as pools:
        hood = Hood(pools, LogSink(), spec_of(), spec_of(identity="honest"))
        for _ in range(2):
            reached(await hood.call("hold", mib=600), "memory_bytes", "bytes")
        assert value_in(await hood.call("echo", text="x")) == "x"
        await hood.honest()


@pytest.mark.parametrize(("threads", "isolation"), [(1, Isolation.PROCESS), (8, Isolation.CALL)])
async def test_processor_time_is_that_of_a_call_and_not_of_the_process(threads: int, isolation: Isolation) -> None:
    async with asyncio.timeout(BOUND_S * 2), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(cpu_s=1, isolation=isolation), spec_of(identity="honest"))
        bomb = asyncio.ensure_future(hood.call("spin", seconds=30, threads=threads))
        await hood.honest()
        result = await bomb
        details = reached(result, "cpu_s", "s")
        assert details["ended_by"] in {"cancel_frame", "sigterm", "sigkill"}
        # Two calls that use less each, and together more than one may.
        for _ in range(2):
            assert value_in(await hood.call("spin", seconds=0.7)) == 0.7
        await hood.honest()


async def test_a_process_that_has_served_its_share_is_replaced_between_calls() -> None:
    async with asyncio.timeout(BOUND_S * 2), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(cpu_s=1), spec_of(identity="honest"))
        first = await pools.acquire(hood.spec)
        first.release()
        for _ in range(2):
            assert value_in(await hood.call("spin", seconds=0.7)) == 0.7
        await until_dead(first.worker)
        second = await pools.acquire(hood.spec)
        second.release()
        assert second.worker is not first.worker


async def test_calls_beside_one_another_share_the_time_of_their_process() -> None:
    async with asyncio.timeout(BOUND_S * 2), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(cpu_s=1), spec_of(identity="honest"))
        # Together more than one of them may, each less.
        results = await asyncio.gather(*(hood.call("spin", seconds=0.5) for _ in range(4)))
        assert [value_in(result) for result in results] == [0.5] * 4


async def test_of_a_call_that_may_have_written_it_is_said_that_nobody_knows() -> None:
    async with asyncio.timeout(BOUND_S), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(level=Level.WRITE), spec_of(identity="honest"))
        await hood.call("echo", text="warm")
        details = reached(await hood.call("hold", mib=600), "memory_bytes", "bytes")
        assert details["outcome_unknown"] is True
        assert "outcome_unknown" not in reached(await hood.call("open_files", count=80), "open_files", "files")


async def test_receipts_name_what_bounds_the_tree(hood: Hood) -> None:
    lease = await hood.pools.acquire(hood.spec)
    layers = {layer.name: layer for layer in lease.worker.receipt.layers}
    if hood.spec.policy.cgroups:
        assert str(LIMITS.memory_bytes) in layers["cgroup"].detail
        assert not any(layer.weaker for layer in layers.values())
    else:
        assert {name for name, layer in layers.items() if layer.weaker} == {"rlimits", "watchdog", "cpus"}
        assert "cgroup" not in layers
    lease.release()


async def test_each_call_tells_what_it_used(hood: Hood) -> None:
    lease = await hood.pools.acquire(hood.spec)
    used = []
    for tool, arguments in (("echo", {"text": "x"}), ("spin", {"seconds": 0.3}), ("hold", {"mib": 100})):
        handle = lease.worker.invoke(invocation(tool, arguments_json=json.dumps(arguments)))
        result = await ended(handle)
        assert result.error is None
        used.append(result.used)
    echo, spin, hold = used
    assert echo.cpu_s < 0.2
    assert 0.29 < spin.cpu_s < 3
    assert 0 < echo.peak_memory_bytes <= spin.peak_memory_bytes <= hold.peak_memory_bytes
    assert echo.source.startswith("cgroup" if hood.spec.policy.cgroups else "proc")
    if hood.spec.policy.cgroups:
        assert hold.peak_memory_bytes > 100 * MIB
    lease.release()


async def test_threads_that_find_no_address_space_are_not_counted_as_too_many() -> None:
    async with asyncio.timeout(BOUND_S), Pools(LogSink(), SETTINGS) as pools:
        hood = Hood(pools, LogSink(), spec_of(cgroups=False), spec_of(identity="honest"))
        reached(await hood.call("threads", count=20), "memory_bytes", "bytes")
