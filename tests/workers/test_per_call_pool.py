"""Pools of processes for one call each: while one of them starts, and when something comes at the wrong moment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import PythonModule
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import PREWARMED_FORKS, WorkerSpec
from fumehood_server.model.tool import Reason
from fumehood_server.model.worker import WorkerInfo, WorkerState
from fumehood_server.workers import LogSink, Pools

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, children, ended, fork_supervisors, invocation

_IMPORT_S = 1.0
_PLUGIN = '''
import os, sys, time
from pathlib import Path
from fumehood_sdk import Context, Plugin

{at_import}
plugin = Plugin("{name}", version="1.0.0")


@plugin.tool(side_effects="none", isolation="call")
def run(code: str, ctx: Context) -> str:
    """Execute `code` and return it."""
    exec(code, {{"ctx": ctx}})
    return code
'''
_SAYS_SO = 'print("imported", file=sys.stderr, flush=True)\n'
_BROKEN = '(Path(__file__).parent / "broken").exists()'
"""Whether the test has made the plugin break, which it can mend."""
_DIES_AT_IMPORT = f'{_SAYS_SO}if {_BROKEN}:\n    raise RuntimeError("broken")'
_ZYGOTE_DIES_OF_FORKING = f"{_SAYS_SO}if {_BROKEN}:\n    os.register_at_fork(before=lambda: os._exit(1))"
_CHILDREN_ARE_BORN_DEAD = f"{_SAYS_SO}if {_BROKEN}:\n    os.register_at_fork(after_in_child=lambda: os._exit(1))"

Breakable = Callable[[str], WorkerSpec]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S * 2), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@pytest.fixture(params=["forked", "launched"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spec(kind: str, bench: Bench) -> WorkerSpec:
    return of_kind(bench.spec(), kind)


@pytest.fixture
def breakable(bench: Bench, tmp_path: Path) -> Breakable:
    """A plugin that does something at its import, and may look whether the test has broken it."""

    def make(at_import: str) -> WorkerSpec:
        (tmp_path / "breakable.py").write_text(_PLUGIN.format(name="breakable", at_import=at_import))
        return bench.spec("breakable", folder=tmp_path)

    return make


@pytest.fixture
def slow(kind: str, breakable: Breakable) -> WorkerSpec:
    """A plugin that takes a while to start."""
    return of_kind(breakable(f"time.sleep({_IMPORT_S})"), kind)


def of_kind(spec: WorkerSpec, kind: str) -> WorkerSpec:
    """The same, whether its processes are forked or not."""
    assert isinstance(spec.program, PythonModule)
    return spec if kind == "forked" else replace(spec, program=replace(spec.program, forks=0))


def workers_for_calls(bench: Bench) -> list[WorkerInfo]:
    return [info for info in bench.pools.workers() if "zygote" not in info.worker_id]


def prewarmed(bench: Bench) -> int:
    """Workers that are ready and nobody's, but for those that are leased and have no call yet."""
    return sum(
        info.state is WorkerState.READY and not info.calls_in_flight and not info.calls_served
        for info in workers_for_calls(bench)
    )


def pending(bench: Bench) -> int:
    """Workers that the only pool there is has ordered, and that are not there."""
    (pool,) = bench.pools._pool_tasks
    source = pool._source  # type: ignore[attr-defined] # of a pool for calls
    return 0 if source is None else int(source.pending)


def imports(bench: Bench) -> list[str]:
    """The workers that have imported the plugin, in order."""
    return [line.worker_id for line in bench.logs.of("breakable").last(1000) if line.message == "imported"]


async def served_after_the_backoff(bench: Bench, spec: WorkerSpec) -> None:
    """A call is served, at the latest when a caller has heard that it must wait."""
    async with asyncio.timeout(BOUND_S / 2):
        while True:
            try:
                assert await bench.run("pass", spec=spec) == "pass"
            except WorkerUnavailableError:
                await asyncio.sleep(0.005)
            else:
                return


async def test_start_that_takes_longer_than_a_pool_may_be_idle_is_waited_for(slow: WorkerSpec) -> None:
    """As that of a plugin that could not be started for so long, and now can."""
    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, replace(SETTINGS, idle_s=_IMPORT_S / 4)) as pools:
        bench = Bench(pools, logs)
        for _ in range(2):
            assert await bench.run("pass", spec=slow) == "pass"
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
    assert await bench.run("pass", spec=slow) == "pass"


async def test_zygote_that_dies_once_it_is_approved_leaves_nobody_waiting(
    bench: Bench, breakable: Breakable, tmp_path: Path
) -> None:
    spec = breakable(_ZYGOTE_DIES_OF_FORKING)
    (tmp_path / "broken").touch()
    async with asyncio.timeout(BOUND_S / 2):
        with pytest.raises(WorkerUnavailableError):
            await bench.pools.acquire(spec)
    (tmp_path / "broken").unlink()
    await served_after_the_backoff(bench, spec)


async def test_plugin_whose_zygote_dies_each_time_once_it_is_approved_is_not_started_in_a_loop(
    breakable: Breakable, tmp_path: Path
) -> None:
    spec = breakable(_ZYGOTE_DIES_OF_FORKING)
    (tmp_path / "broken").touch()
    for _ in range(4):  # its exit and what the fork supervisor says of it race
        logs = LogSink()
        async with asyncio.timeout(BOUND_S), Pools(logs, replace(SETTINGS, backoff_first_s=BOUND_S)) as pools:
            bench = Bench(pools, logs)
            async with asyncio.timeout(BOUND_S / 2):
                for _ in range(5):
                    with pytest.raises(WorkerUnavailableError) as caught:
                        await pools.acquire(spec)
                    assert caught.value.error.details["retry_after_s"] > 0
            await bench.until(lambda: not any(info.process_id for info in pools.workers()))
            assert len(imports(bench)) == 1


async def test_zygote_that_is_killed_between_calls_is_replaced(bench: Bench) -> None:
    """And its prewarmed workers with it, since they are of its PID namespace."""
    spec = bench.spec()
    assert await bench.run("result = 1", spec=spec) == 1
    await bench.until(lambda: prewarmed(bench) == PREWARMED_FORKS)
    (killed,) = bench.zygotes(spec)
    os.kill(killed, signal.SIGKILL)
    await bench.until(lambda: killed not in bench.zygotes(spec))
    async with asyncio.timeout(BOUND_S / 2):
        assert await bench.run("result = 1", spec=spec) == 1


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
            await bench.until(lambda: prewarmed(bench) == PREWARMED_FORKS)
            said[0] = Reason("digest_changed", "not what was read")
            assert await bench.run("result = 1", spec=spec) == 1, "control: a zygote that there is needs no files"
            assert (await bench.call("import os; os._exit(1)", spec=spec)).error is not None
            async with asyncio.timeout(BOUND_S):
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
        for _ in range(2):
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


async def test_process_that_is_given_back_to_a_retired_pool_ends(bench: Bench, spec: WorkerSpec) -> None:
    before = children()
    lease = await bench.pools.acquire(spec)
    await bench.pools.retire(frozenset({spec.key}))
    # The prewarmed ones are gone, and those that were on their way.
    await bench.until(lambda: len(workers_for_calls(bench)) == 1 and not pending(bench))
    for _ in range(20):  # the pool has seen that, and sleeps: nothing but the release can wake it
        await asyncio.sleep(0)
    assert children() > before
    lease.release()
    async with asyncio.timeout(BOUND_S):
        await bench.until(lambda: children() == before)


async def test_retired_pool_whose_children_are_born_dead_ends(
    bench: Bench, breakable: Breakable, tmp_path: Path
) -> None:
    before = children()
    spec = breakable(_CHILDREN_ARE_BORN_DEAD)
    (tmp_path / "broken").touch()
    waiting = asyncio.ensure_future(bench.pools.acquire(spec))
    await asyncio.wait((waiting,), timeout=0)
    await bench.pools.retire(frozenset({spec.key}))
    with pytest.raises(WorkerUnavailableError):
        await waiting
    async with asyncio.timeout(BOUND_S):
        await bench.until(lambda: children() == before)
    assert len(imports(bench)) == 1, "control: it got as far as that"


async def test_retired_pool_is_forgotten_when_its_last_process_has_ended(bench: Bench, spec: WorkerSpec) -> None:
    assert await bench.run("result = 1", spec=spec) == 1
    await bench.pools.retire(frozenset({spec.key}))
    async with asyncio.timeout(BOUND_S):
        await bench.until(lambda: not bench.pools._pool_tasks)
    assert not bench.pools.workers()


async def test_caller_whose_start_failed_beside_a_long_call_is_served_after_the_backoff(
    kind: str, breakable: Breakable, tmp_path: Path
) -> None:
    spec = of_kind(breakable(_DIES_AT_IMPORT), kind)
    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, replace(SETTINGS, backoff_first_s=0.5)) as pools:
        bench = Bench(pools, logs)
        async with bench.holding("pass", spec=spec):
            lease = await pools.acquire(spec)
            (tmp_path / "broken").touch()
            before = len(imports(bench))
            assert (await ended(lease.worker.invoke(invocation("import os; os._exit(1)")))).error is not None
            lease.release()
            waiting = asyncio.ensure_future(pools.acquire(spec))
            await bench.until(lambda: any("broken" in line.message for line in logs.of("breakable").last(1000)))
            (tmp_path / "broken").unlink()
            async with asyncio.timeout(BOUND_S):
                lease = await waiting
            lease.release()
            assert len(imports(bench)) >= before + 2, "control: one start failed"


async def test_fork_supervisor_that_says_nothing_is_replaced() -> None:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, replace(SETTINGS, fork_answer_s=1.0)) as pools:
        bench = Bench(pools, logs)
        spec = bench.spec()
        assert await bench.run("result = 1", spec=spec) == 1
        (supervisor,) = fork_supervisors()
        os.kill(supervisor, signal.SIGSTOP)
        async with asyncio.timeout(BOUND_S / 2):
            for _ in range(4):  # the prewarmed ones, and those that they hide
                assert await bench.run("result = 1", spec=spec) == 1
        await bench.until(lambda: supervisor not in fork_supervisors())


@pytest.mark.parametrize("end", ["closed", "closed by force"])
async def test_pool_that_is_closed_while_its_files_are_verified_refuses_who_waits(end: str) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def verify(_spec: WorkerSpec) -> Reason | None:
        begun.set()
        await never.wait()
        return None

    pools = Pools(LogSink(), SETTINGS, verify=verify)
    async with asyncio.timeout(BOUND_S), pools:
        bench = Bench(pools, LogSink())
        waiting = asyncio.ensure_future(pools.acquire(bench.spec()))
        await begun.wait()
        if end == "closed by force":
            closing = asyncio.ensure_future(pools.close(60.0))
            await asyncio.sleep(0)
            closing.cancel()
        else:
            await pools.close(0.0)
        with pytest.raises(WorkerUnavailableError, match="shutting down"):
            await waiting
    assert pools.workers() == ()
