"""A closed loop: a fixed number of lanes, each sending its next call once its last was answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Echo = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of a load found."""

    p50_ms: float
    p99_ms: float
    per_s: float


async def run(echo: Echo, *, in_flight: int, calls: int) -> Load:
    """Make `calls` calls, `in_flight` at a time. Each call checks its own answer, so that an error ends the run."""
    latencies_s: list[float] = []
    left = calls
    clock = time.perf_counter

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            begun = clock()
            await echo()
            latencies_s.append(clock() - begun)

    begun = clock()
    async with asyncio.TaskGroup() as lanes:
        for _ in range(in_flight):
            lanes.create_task(lane())
    elapsed_s = clock() - begun
    latencies_s.sort()
    return Load(
        p50_ms=_share(latencies_s, 0.5) * 1000, p99_ms=_share(latencies_s, 0.99) * 1000, per_s=calls / elapsed_s
    )


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
