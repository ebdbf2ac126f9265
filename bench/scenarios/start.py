"""Starts with a hundred plugins of ten tools: when each is pinned and copied for the first time, and when it is again.

Of the kinds that a manifest describes. A Python plugin is started once to be pinned, which is its own interpreter's
time; afterwards it costs what the others do.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort
from bench.harness.sidecar import sidecar, until_serving
from bench.scenarios.catalog import write_plugins

_ISSUE = 11


async def measure(effort: Effort, folder: Path) -> Report:
    """Start the sidecar in turns with nothing pinned and with everything, until it says that it serves."""
    newly: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    for turn in range(effort.starts):
        config = write_plugins(_made(folder / str(turn)), effort.plugins)
        newly.append(await _start(config))
        again.append(await _start(config))
        shutil.rmtree(folder / str(turn), ignore_errors=True)
    plugins = f"{effort.plugins} plugins"
    return Report(
        rows=[
            Row("start", f"{plugins}, newly pinned and copied", _figures(newly)),
            Row("start", f"{plugins}, pinned and copied before", _figures(again)),
        ],
        targets=[
            Target(f"seconds of a start, {plugins} newly pinned", _least(newly, 0), 2, issue=_ISSUE),
            Target(f"seconds of a start, {plugins} pinned before", _least(again, 0), 2, issue=_ISSUE),
        ],
    )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def _start(config: Path) -> tuple[float, float]:
    """Seconds until it serves, and the processor time of it and its children."""
    begun = time.perf_counter()
    async with sidecar(config) as ours:
        await until_serving(ours.address)
        wall_s = time.perf_counter() - begun
        return wall_s, sum(psutil.Process(ours.pid).cpu_times()[:4])


def _least(starts: Sequence[tuple[float, float]], place: int) -> float:
    """Of the quickest start: whatever else the machine does only adds to it."""
    return min(each[place] for each in starts)


def _figures(starts: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {"start_s": _least(starts, 0), "cpu_s": _least(starts, 1)}
