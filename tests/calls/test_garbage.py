"""What a call leaves behind for the collector of reference cycles: nothing, since thousands come a second."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import structlog
from fumehood_server.calls import Executor
from fumehood_server.config.load import load_config
from fumehood_server.journal.off import NO_JOURNAL
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.workers import LogSink, Pools

from tests.calls.fake import FakePools, FakeTools, FakeWorker, answered, ended, request, tool

CALLS = 50
BOUND_S = 60.0
ARGUMENTS = '{"count":1,"sides":6}'
DICE = Path(__file__).resolve().parents[2] / "examples" / "plugins" / "dice"


async def test_the_memory_of_a_call_is_free_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "fumehood.toml"
    path.write_text(f'[server]\nlisten = ["unix:{tmp_path}/s.sock"]\n\n[[plugin]]\npath = "{DICE}"\n')
    log = structlog.wrap_logger(structlog.testing.CapturingLogger())
    async with asyncio.timeout(BOUND_S), Pools(LogSink()) as pools:
        catalog = await Catalog.load(load_config(path), describe=pools.describe, log=log)
        async with Executor(catalog, pools, journal=NO_JOURNAL, max_concurrent_calls=4) as executor:

            async def calls() -> None:
                for _ in range(CALLS):
                    call = executor.start(request(ARGUMENTS, name="roll_dice"))
                    updates = call.updates.read(_nobody)
                    outcome = await call.outcome()
                    updates.close()
                    assert outcome.error is None

            await calls()
            gc.collect()
            gc.disable()
            try:
                await calls()
                found = gc.collect()
            finally:
                gc.enable()
    assert found < CALLS


async def _has_a_result(executor: Executor, worker: FakeWorker) -> None:
    worker.answer = lambda _: answered("done")
    await ended(executor.start(request()))


async def _is_refused(executor: Executor, _worker: FakeWorker) -> None:
    await ended(executor.start(request("{}")))


async def _is_cancelled(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    await worker.invoked(1)
    worker.attempts.clear()
    call.abandon()
    await ended(call)


async def _meets_its_deadline(executor: Executor, worker: FakeWorker) -> None:
    await ended(executor.start(request(timeout_s=0.001)))
    worker.attempts.clear()


async def _loses_who_waits(executor: Executor, worker: FakeWorker) -> None:
    call = executor.start(request())
    waiting = asyncio.create_task(call.outcome())
    await worker.invoked(1)
    worker.attempts.clear()
    waiting.cancel()
    await asyncio.wait((waiting,))
    call.abandon()
    await ended(call)


@pytest.mark.parametrize("way", [_has_a_result, _is_refused, _is_cancelled, _meets_its_deadline, _loses_who_waits])
async def test_no_way_to_end_leaves_a_reference_cycle(way: Callable[[Executor, FakeWorker], Awaitable[None]]) -> None:
    worker = FakeWorker()
    async with Executor(
        FakeTools((tool(),)), FakePools(worker=worker), journal=NO_JOURNAL, max_concurrent_calls=4
    ) as executor:
        await way(executor, worker)
        gc.collect()
        gc.disable()
        try:
            for _ in range(CALLS):
                await way(executor, worker)
            found = gc.collect()
        finally:
            gc.enable()
    assert found < CALLS


def _nobody() -> None:
    """Reads no update."""
