"""Starts and ends of processes happen beside the event loop, and leave nothing when they are cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from fumehood_sandbox import launch_thread
from fumehood_server.calls.validator_process import start_validator
from fumehood_server.launches import start_off_loop
from fumehood_server.model.plugin import Kind, WorkerSpec
from fumehood_server.model.tool import Isolation
from fumehood_server.plugins.launch.program import build
from fumehood_server.telemetry.loop_watchdog import LoopFigures, LoopWatchdog
from fumehood_server.workers import LogSink
from fumehood_server.workers.pools.interface import PoolContext
from fumehood_server.workers.pools.zygote import greeted_zygote
from fumehood_server.workers.process.start import started_worker

from tests.isolation.bench import BOUND_S, FOLDER, SETTINGS, children, made
from tests.resources.leaves import own_leaves

STARTS = 16
MOST_S = 0.08
"""Of the loop: STARTS of 7 ms each, as on a fast machine, would take more."""
TRIES = 10
"""A machine that others use may hold up the loop for so long, but not each time."""


SPECS = {
    isolation: made("probe", build(Kind.PYTHON, FOLDER, entrypoint="probe:plugin"), isolation=isolation)
    for isolation in (Isolation.CALL, Isolation.PROCESS)
}


def context_of(spec: WorkerSpec) -> PoolContext:
    return PoolContext(
        spec=spec,
        log=LogSink().of(spec.plugin),
        settings=SETTINGS,
        ids=iter(range(1000)),
        verify=None,
        plugin_requests=None,
    )


def worker() -> AbstractAsyncContextManager[object]:
    context = context_of(SPECS[Isolation.PROCESS])
    return started_worker(context.spec, "worker", log=context.log, settings=context.settings)


def zygote() -> AbstractAsyncContextManager[object]:
    return greeted_zygote(context_of(SPECS[Isolation.CALL]))


async def started_and_ended(made: Callable[[], AbstractAsyncContextManager[object]]) -> None:
    async with made():
        pass


async def many_starts() -> LoopFigures:
    await started_and_ended(worker)  # what is found out once a process is known from here on
    watchdog = LoopWatchdog(lambda *_: None, lambda _: None)
    with watchdog.watching():
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as starts:
            for number in range(STARTS):
                starts.create_task(started_and_ended(zygote if number % 4 == 0 else worker))
    return watchdog.figures


def test_many_starts_at_once_do_not_hold_up_the_loop() -> None:
    tried: list[LoopFigures] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while not tried or (tried[-1].longest_s >= MOST_S and len(tried) < TRIES):
            tried.append(runner.run(many_starts()))
    assert tried[-1].longest_s < MOST_S, tried


# Cancelled at each moment.


class CancelledAt(Awaitable[None]):
    """Runs a coroutine and cancels its task at its nth wait: at once, or when what it waits for comes."""

    def __init__(self, coroutine: Any, *, wait: int, as_it_comes: bool) -> None:
        self._coroutine = coroutine
        self._wait = wait
        self._as_it_comes = as_it_comes
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        step, value = self._coroutine.send, None
        while True:
            try:
                awaited = step(value)
            except StopIteration:
                return
            if self.waits == self._wait:
                if self._as_it_comes and awaited is not None:
                    awaited.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            self.waits += 1
            try:
                value = yield awaited
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - the coroutine's, whatever it is
                step, value = self._coroutine.throw, error


def held() -> tuple[set[int], int, set[Path]]:
    return children(), len(list(Path("/proc/self/fd").iterdir())), own_leaves()


def has_more(before: tuple[set[int], int, set[str]]) -> bool:
    processes, descriptors, folders = held()
    return bool(processes - before[0]) or descriptors > before[1] or bool(folders - before[2])


async def validator() -> None:
    process = await start_validator()
    await process.end()


STARTED: dict[str, Callable[[], Any]] = {
    "worker": lambda: started_and_ended(worker),
    "zygote": lambda: started_and_ended(zygote),
    "validator": validator,
}


@pytest.mark.parametrize("what", STARTED)
@pytest.mark.parametrize("as_it_comes", [False, True])
async def test_start_that_is_cancelled_at_any_moment_leaves_nothing(what: str, *, as_it_comes: bool) -> None:
    await STARTED[what]()
    before, wait = held(), 0
    while True:
        at = CancelledAt(STARTED[what](), wait=wait, as_it_comes=as_it_comes)

        async def run(at: CancelledAt = at) -> None:
            await at

        async with asyncio.timeout(BOUND_S):
            task = asyncio.create_task(run())
            await asyncio.wait([task])
            assert task.cancelled() or task.exception() is None
            while has_more(before):  # noqa: ASYNC110 - nothing tells when the kernel has let go
                await asyncio.sleep(0)
        if at.waits <= wait:
            break
        wait += 1
    assert wait > 1, "it was never cancelled"


async def test_start_that_has_not_begun_is_cancelled_without_being_made() -> None:
    made: list[int] = []
    release = threading.Event()
    first = launch_thread().submit(release.wait)
    second = asyncio.create_task(start_off_loop(lambda: made.append(1), undo=lambda _: None))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    assert second.cancelled()
    release.set()
    assert await asyncio.wrap_future(first)
    await start_off_loop(lambda: None, undo=lambda _: None)
    assert made == []
