"""How soon limits bite, and what a sandboxed start takes: from a deadline to a dead tree, and a cold start."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import structlog
from fumehood_server.config.load import load_config
from fumehood_server.model.call import CallContext
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.worker import Attempt, CancelReason, Invocation
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.workers import LogSink, Pools

from bench.harness.processes import ROOT
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, ratio
from bench.harness.sidecar import echo_config, write_config
from bench.scenarios.ready import sdk_alone, start_worker

ISSUE = 2
"""Whose targets these are, as its text numbers them."""
IN_FLIGHT = 20
SPACING_S = 0.05
"""Between two deadlines: calls that begin at their own times end at their own times. All at once is told as well."""
STUBBORN = ROOT / "bench" / "plugins" / "stubborn"
_BOUND_S = 60.0


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure the ends of calls, then starts, turn by turn."""
    report = Report()
    for how, spacing_s in (("each at its own time", SPACING_S), ("all at once", 0.0)):
        ends = sorted(
            [end for _ in range(effort.rounds) for end in await _ends(folder / f"ends{spacing_s}", spacing_s)]
        )
        p99_ms = ends[min(len(ends) - 1, int(len(ends) * 0.99))]
        figures = {"p50_ms": median(ends), "p99_ms": p99_ms}
        report.add(rows=[Row("deadline to dead tree, 20 in flight", how, figures)])
        report.add(targets=[Target(f"ms from deadline to dead tree, p99, {how}", p99_ms, 50, issue=ISSUE)])
    async with _pools(folder / "start", "echo") as (pools, spec):
        sandboxed, alone = [], []
        for _ in range(effort.starts + 1):
            sandboxed.append(await _timed(lambda: start_worker(pools, spec)))
            alone.append(await _timed(sdk_alone))
    report.add(
        rows=[
            Row("cold start", "Python plugin, sandboxed", {"median_ms": median(sandboxed[1:])}),
            Row("cold start", "Python plugin, no sandbox", {"median_ms": median(alone[1:])}),
        ],
        targets=[Target("cold start, sandboxed / not", ratio(sandboxed[1:], alone[1:]), 1.5, issue=ISSUE)],
    )
    return report


async def _timed(action: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await action()
    return (time.perf_counter() - begun) * 1000


@asynccontextmanager
async def _pools(
    folder: Path, tool: str, on_line: Callable[[str], None] = lambda _: None
) -> AsyncIterator[tuple[Pools, WorkerSpec]]:
    """Pools with the spec of one tool. `on_line` is told what the plugin writes to stderr."""
    path = echo_config(folder) if tool == "echo" else write_config(folder, f'[[plugin]]\npath = "{STUBBORN}"\n')
    log = structlog.wrap_logger(structlog.testing.CapturingLogger())
    async with Pools(LogSink(lambda _, line: on_line(line.message))) as pools:
        catalog = await Catalog.load(load_config(path), describe=pools.describe, log=log)
        found = catalog.find(tool)
        if found is None or found.spec is None:
            raise RuntimeError(f"the plugin of {tool} was refused")
        yield pools, found.spec


# From a deadline to the end of every process of a call.


async def _ends(folder: Path, spacing_s: float) -> list[float]:
    """Have calls in processes of their own, which ignore everything, meet their deadlines, so far apart.

    Returns milliseconds from each one's deadline until its whole tree was dead.
    """
    grown = asyncio.Semaphore(0)
    async with _pools(folder, "hang", lambda _: grown.release()) as (pools, spec):
        leases = await asyncio.gather(*(pools.acquire(spec) for _ in range(IN_FLIGHT)))
        calls = [lease.worker.invoke(_invocation("hang", "{}")) for lease in leases]
        async with asyncio.timeout(_BOUND_S):
            for _ in calls:
                await grown.acquire()
        loop = asyncio.get_running_loop()
        by_worker = {info.worker_id: _below(info.process_id) for info in pools.workers() if info.calls_in_flight}
        deaths = _Deaths([by_worker[lease.worker.worker_id] for lease in leases])
        first = loop.time() + 0.1
        deadlines = [first + number * spacing_s for number in range(IN_FLIGHT)]
        async with asyncio.timeout(_BOUND_S):
            await asyncio.gather(*(_end_at(call, at) for call, at in zip(calls, deadlines, strict=True)))
            died = await asyncio.to_thread(deaths.join)
        for lease in leases:
            lease.release()
    return [(at - deadline) * 1000 for at, deadline in zip(died, deadlines, strict=True)]


async def _end_at(call: Attempt, deadline: float) -> None:
    """As the executor does it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await call.result()
    await call.end(CancelReason.DEADLINE)


class _Deaths:
    """Notes in a thread of its own when the last process of each tree is dead: the loop has calls to end meanwhile."""

    def __init__(self, trees: list[list[int]]) -> None:
        self._fds: dict[int, int] = {}
        for number, pids in enumerate(trees):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    self._fds[os.pidfd_open(pid)] = number
        self._died = [0.0] * len(trees)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        for fd in self._fds:
            poller.register(fd, select.POLLIN)
        while self._fds:
            ready = poller.poll()
            now = time.monotonic()
            for fd, _ in ready:
                poller.unregister(fd)
                self._died[self._fds.pop(fd)] = now
                os.close(fd)

    def join(self) -> list[float]:
        """Return when each tree was dead, on the clock of event loops."""
        self._thread.join(_BOUND_S)
        return self._died


def _below(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii").split()
            found += [each for child in children for each in _below(int(child))]
    return found


def _invocation(tool: str, arguments_json: str) -> Invocation:
    return Invocation(tool, tool, arguments_json, CallContext(), 1, 30.0, None)
