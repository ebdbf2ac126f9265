"""Workers whose end meets a fault: no process, no call and no caller is left behind."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fumehood_sandbox import launch
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import LogSink, Pools
from fumehood_server.workers.pools.per_call import PerCallPool
from fumehood_server.workers.process import frame_dispatch
from fumehood_server.workers.process.lifecycle import EndRequest
from fumehood_server.workers.process.worker import ProcessWorker

from tests.faults.bench import SETTINGS as FAULT_SETTINGS
from tests.faults.bench import misbehaving, processes
from tests.isolation.bench import BOUND_S, SETTINGS, Bench, ended


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    logs = LogSink()
    async with asyncio.timeout(BOUND_S), Pools(logs, SETTINGS) as pools:
        yield Bench(pools, logs)


@pytest.mark.parametrize("faulty", [True, False])
async def test_process_is_killed_where_asking_it_to_end_fails(faulty: bool) -> None:
    token = uuid.uuid4().hex
    spec = misbehaving("serve", token)
    process = launch(spec.policy, spec.program)
    asked: list[int] = []

    class Process:
        """The process, which the kernel may refuse a signal for."""

        def __getattr__(self, name: str) -> object:
            return getattr(process, name)

        def terminate(self) -> None:
            asked.append(process.pid)
            if faulty:
                raise PermissionError
            process.terminate()

    held = Process()
    held.relay = None  # type: ignore[attr-defined] # given to the router, as that of any process
    worker = ProcessWorker(spec, "w", held, log=LogSink().of("serve"), settings=FAULT_SETTINGS)  # type: ignore[arg-type]
    async with asyncio.timeout(BOUND_S), worker:
        await worker.greet(BOUND_S)
        worker.life.request(EndRequest.TERMINATE)
    assert asked, "control: it was asked"
    assert worker.state is WorkerState.DEAD
    assert processes(token) == []


async def test_call_whose_result_cant_be_taken_ends_at_once_and_the_next_call_gets_another_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(bench.spec(isolation=Isolation.PROCESS), max_workers=1)
    assert await bench.run("result = 1", spec=spec) == 1
    (before,) = (info.worker_id for info in bench.pools.workers())

    def result(*_: object, **__: object) -> None:
        raise RuntimeError("of ours")

    with monkeypatch.context() as patched:
        patched.setattr(frame_dispatch.messages, "result", result)
        error = (await bench.call("result = 1", spec=spec)).error
    assert error is not None
    assert (error.code, error.details["reason"]) == (Code.TOOL_EXECUTION_FAILED, "internal_error")
    assert await bench.run("result = 1", spec=spec) == 1
    assert before not in {info.worker_id for info in bench.pools.workers()}


async def test_zygote_that_must_end_takes_its_calls_along_and_the_next_call_gets_another(bench: Bench) -> None:
    spec = bench.spec()
    async with bench.started("ctx.update('ready'); ctx.sleep(60)", spec=spec) as (attempt, _):
        (pool,) = bench.pools._pool_tasks
        assert isinstance(pool, PerCallPool)
        assert pool._source is not None
        (before,) = bench.zygotes(spec)
        pool._source._current.worker.kill()  # type: ignore[attr-defined] # as a violation of the wire does
        async with asyncio.timeout(BOUND_S / 2):  # before the call would have ended by itself
            assert (await ended(attempt)).error is not None
    assert await bench.run("result = 1", spec=spec) == 1
    await bench.until(lambda: before not in bench.zygotes(spec))
