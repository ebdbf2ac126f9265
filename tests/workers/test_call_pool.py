"""Pools of processes for one call each: while one of them starts, and when something comes at the wrong moment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from fumehood_sandbox import PythonModule
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.tool import Reason
from fumehood_server.workers import LogSink, Pools, faults
from fumehood_server.workers.pools import forked as nursery
from fumehood_server.workers.pools import launched as relaunch
from fumehood_server.workers.pools import zygote
from fumehood_server.workers.pools.zygote import Zygote

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, children, ended, fork_supervisors, invocation

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


async def test_zygote_that_dies_as_it_is_approved_leaves_nobody_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its end and its approval are read in one turn of a loop that was busy."""
    hatch = nursery.hatch
    died = 0

    async def and_dies(*arguments: object, **others: object) -> Zygote:
        nonlocal died
        hatched: Zygote = await hatch(*arguments, **others)  # type: ignore[arg-type]
        if not died:
            os.kill(hatched.worker.info.process_id, signal.SIGKILL)
            await asyncio.wait((hatched.worker.dead,))
            died += 1
        return hatched

    monkeypatch.setattr(nursery, "hatch", and_dies)
    spec = bench.spec()
    async with asyncio.timeout(10):
        with pytest.raises(WorkerUnavailableError):
            await bench.pools.acquire(spec)
        await asyncio.sleep(SETTINGS.backoff_first_s)
        assert await bench.run("result = 1", spec=spec) == 1
    assert died


async def test_zygote_that_is_replaced_is_not_made_of_what_was_not_verified() -> None:
    said: list[Reason | None] = [None]

    async def verify(_: WorkerSpec) -> Reason | None:
        return said[0]

    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, SETTINGS, verify=verify) as pools:
        bench = Bench(pools, logs)
        spec = bench.spec()
        async with bench.holding("pass", spec=spec):
            assert await bench.run("result = 1", spec=spec) == 1
            await asyncio.sleep(0.2)  # the spares are there
            said[0] = Reason("digest_changed", "not what was read")
            assert await bench.run("result = 1", spec=spec) == 1, "control: a zygote that there is needs no files"
            assert (await bench.call("import os; os._exit(1)", spec=spec)).error is not None
            async with asyncio.timeout(5):
                with pytest.raises(WorkerUnavailableError, match="not what was read"):
                    await pools.acquire(spec)


async def test_zygote_after_an_idle_end_is_not_made_of_what_was_not_verified() -> None:
    said: list[Reason | None] = [None]

    async def verify(_: WorkerSpec) -> Reason | None:
        return said[0]

    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, replace(SETTINGS, idle_s=0.3), verify=verify) as pools:
        bench = Bench(pools, logs)
        spec = bench.spec()
        assert await bench.run("result = 1", spec=spec) == 1
        await asyncio.sleep(0.1)
        assert await bench.run("result = 1", spec=spec) == 1
        await bench.until(lambda: not pools.workers())
        said[0] = Reason("digest_changed", "not what was read")
        with pytest.raises(WorkerUnavailableError, match="not what was read"):
            await bench.run("result = 1", spec=spec)


async def test_process_of_a_call_that_could_not_be_sent_serves_another(bench: Bench) -> None:
    spec = bench.spec()
    lease = await bench.pools.acquire(spec)
    result = await ended(lease.worker.invoke(replace(invocation("x"), arguments_json="\ud800")))
    assert result.error is not None
    lease.release()
    again = await bench.pools.acquire(spec)
    assert again.worker is lease.worker
    assert (await ended(again.worker.invoke(invocation("result = 1")))).error is None
    again.release()


@pytest.fixture(params=["forked", "launched"])
def spec(request: pytest.FixtureRequest, bench: Bench) -> WorkerSpec:
    spec = bench.spec()
    assert isinstance(spec.program, PythonModule)
    return spec if request.param == "forked" else replace(spec, program=replace(spec.program, forks=0))


async def test_process_that_is_given_back_to_a_retired_pool_ends(bench: Bench, spec: WorkerSpec) -> None:
    before = children()
    lease = await bench.pools.acquire(spec)
    await bench.pools.retire(frozenset({spec.key}))
    await bench.until(lambda: len([info for info in bench.pools.workers() if "zygote" not in info.worker_id]) == 1)
    await asyncio.sleep(0.2)  # the spares are gone, and those that were on their way
    lease.release()
    async with asyncio.timeout(5):
        await bench.until(lambda: children() == before)


async def test_retired_pool_whose_birth_fails_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_descriptors(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    before = children()
    spec = bench.spec()
    waiting = asyncio.ensure_future(bench.pools.acquire(spec))
    await asyncio.sleep(0)
    await bench.pools.retire(frozenset({spec.key}))
    monkeypatch.setattr(nursery, "ProcessWorker", without_descriptors)
    with pytest.raises(WorkerUnavailableError):
        await waiting
    async with asyncio.timeout(5):
        await bench.until(lambda: children() == before)


async def test_retired_pool_is_forgotten_when_its_last_process_has_ended(bench: Bench, spec: WorkerSpec) -> None:
    assert await bench.run("result = 1", spec=spec) == 1
    await bench.pools.retire(frozenset({spec.key}))
    async with asyncio.timeout(5):
        await bench.until(lambda: not bench.pools._retired)
    assert not bench.pools.workers()


async def test_caller_whose_start_failed_beside_a_long_call_is_served_after_the_backoff(
    spec: WorkerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0

    def once(module: ModuleType, name: str) -> None:
        true = getattr(module, name)

        async def start(*arguments: object, **others: object) -> object:
            nonlocal failed
            if failed:
                return await true(*arguments, **others)
            failed += 1
            raise WorkerUnavailableError(faults.internal_error("probe", OSError("no descriptors")))

        monkeypatch.setattr(module, name, start)

    logs = LogSink()
    settings = replace(SETTINGS, backoff_first_s=0.5)
    async with asyncio.timeout(BOUND_S), Pools(logs, settings) as pools:
        bench = Bench(pools, logs)
        async with bench.holding("pass", spec=spec):
            lease = await pools.acquire(spec)
            once(nursery, "hatch")
            once(relaunch, "start")
            result = ended(lease.worker.invoke(invocation("import os; os._exit(1)")))
            assert (await result).error is not None
            lease.release()
            async with asyncio.timeout(5):
                lease = await pools.acquire(spec)
            lease.release()
            assert failed == 1, "control: one did"


async def test_fork_supervisor_that_says_nothing_is_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "ANSWER_S", 1.0, raising=False)
    spec = bench.spec()
    assert await bench.run("result = 1", spec=spec) == 1
    (supervisor,) = fork_supervisors()
    os.kill(supervisor, signal.SIGSTOP)
    async with asyncio.timeout(10):
        for _ in range(4):  # the spares, and those that they hide
            assert await bench.run("result = 1", spec=spec) == 1
    assert supervisor not in fork_supervisors()
