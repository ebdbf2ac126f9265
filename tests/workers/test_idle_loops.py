"""Pools that have nothing to do let the event loop sleep."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest
from fumehood_sandbox import PythonModule
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import PREWARMED_FORKS
from fumehood_server.model.tool import Isolation
from fumehood_server.workers import LogSink, Pools

from tests.isolation.bench import BOUND_S, SETTINGS, Bench, children, ended, fork_supervisors, invocation

_OBSERVED_S = 0.5
_BACKOFF_S = 0.1
_MOST_WAKE_UPS = 50
"""A loop that spins wakes up tens of thousands of times in that time."""


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts how often the loop asked it."""

    count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.count += 1
        return super().select(timeout)


def run(scenario: Callable[[Bench, Callable[[], Coroutine[None, None, int]]], Coroutine[None, None, None]]) -> None:
    """Run it in a loop that counts, with pools and with a function that says how often the loop wakes up."""
    selector = CountingSelector()

    async def wake_ups() -> int:
        before = selector.count
        await asyncio.sleep(_OBSERVED_S)  # what is observed, and not a wait for something
        return selector.count - before

    async def main() -> None:
        logs = LogSink()
        async with (
            asyncio.timeout(BOUND_S),
            Pools(logs, replace(SETTINGS, backoff_first_s=_BACKOFF_S, backoff_last_s=_BACKOFF_S)) as pools,
        ):
            await scenario(Bench(pools, logs), wake_ups)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main())


@pytest.mark.parametrize("kind", ["shared", "forked", "launched"])
def test_failure_that_counts_no_more_leaves_the_loop_asleep_while_a_worker_starts(kind: str, tmp_path: Path) -> None:
    broken = tmp_path / "is_broken"
    (tmp_path / "slow.py").write_text(
        f"import os, time\nif os.path.exists({str(broken)!r}):\n    raise RuntimeError\ntime.sleep(60)\n"
    )

    async def scenario(bench: Bench, wake_ups: Callable[[], Coroutine[None, None, int]]) -> None:
        isolation = Isolation.PROCESS if kind == "shared" else Isolation.CALL
        spec = bench.spec("slow", folder=tmp_path, isolation=isolation)
        if kind == "launched":
            assert isinstance(spec.program, PythonModule)
            spec = replace(spec, program=replace(spec.program, forks=0))
        broken.touch()
        with pytest.raises(WorkerUnavailableError):
            await bench.pools.acquire(spec)
        await bench.until(lambda: not children())  # a prewarmed one fails as well, in a pool of launched ones
        broken.unlink()
        await asyncio.sleep(_BACKOFF_S)  # the time that is tested: a start is refused before
        waiting = asyncio.ensure_future(bench.pools.acquire(spec))
        try:
            await bench.until(lambda: len(children()) > 0)
            await asyncio.sleep(2 * _BACKOFF_S)  # likewise: the failure counts for so long
            assert await wake_ups() < _MOST_WAKE_UPS
            assert not waiting.done(), "control: the worker is still starting"
        finally:
            waiting.cancel()

    run(scenario)


def test_answer_that_nobody_takes_leaves_the_loop_asleep() -> None:
    async def scenario(bench: Bench, wake_ups: Callable[[], Coroutine[None, None, int]]) -> None:
        spec = bench.spec()
        async with bench.holding("pass", spec=spec):
            leases = [await bench.pools.acquire(spec)]
            (supervisor,) = fork_supervisors()
            os.kill(supervisor, signal.SIGSTOP)
            try:
                while _ordered(bench) < PREWARMED_FORKS:  # in place of those that are taken: they can't come
                    lease = bench.pools.try_acquire(spec)
                    leases += [] if lease is None else [lease]
                    await asyncio.sleep(0)
                await bench.pools.retire(frozenset({spec.key}))
                await ended(leases[0].worker.invoke(invocation("import os; os._exit(1)")))
                for lease in leases:
                    lease.release()
                await bench.until(lambda: not _ordered(bench))  # for one died, and its zygote forks no more
            finally:
                os.kill(supervisor, signal.SIGCONT)
            assert await wake_ups() < _MOST_WAKE_UPS
            assert bench.zygotes(spec), "control: the zygote lives, for its child has a call"

    run(scenario)


def _ordered(bench: Bench) -> int:
    (pool,) = bench.pools._pool_tasks
    source = pool._source  # type: ignore[attr-defined] # of a pool for calls
    return 0 if source is None else int(source.pending)
