"""Starts with a hundred plugins of ten tools: when each is pinned and copied for the first time, and when it is again.

The first time only of plugins whose manifest declares their tools: a Python plugin is started once to be pinned, which
is its own interpreter's time. Again of both.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil

from bench.harness.processes import READY_S
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort
from bench.harness.sidecar import sidecar, until_serving, write_config
from bench.scenarios.catalog import TOOLS, write_plugins

_ISSUE = 11
_DESCRIBED_S = 300.0
"""For the first start with Python plugins, each of which is started and asked for its tools."""

_MANIFEST = """
[plugin]
name = "plugin-{number}"
version = "1.0.0"
kind = "python"
entrypoint = "plugin_{number}:plugin"
"""

_MODULE = """
from fumehood_sdk import Plugin

plugin = Plugin("plugin-{number}", version="1.0.0")
"""

_TOOL = """

@plugin.tool(side_effects="read", idempotent=True)
def tool_{number}_{tool}(path: str, lines: int = 10) -> str:
    \"\"\"Show the first lines of a file. It is one of a thousand, and described as fully as tools are.\"\"\"
    return path * lines
"""


async def measure(effort: Effort, folder: Path) -> Report:
    """Start the sidecar in turns with nothing pinned and with everything, until it says that it serves."""
    newly: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    for turn in range(effort.starts):
        config = write_plugins(_made(folder / str(turn)), effort.plugins)
        newly.append(await _start(config))
        again.append(await _start(config))
        shutil.rmtree(folder / str(turn), ignore_errors=True)
    config = _write_python_plugins(_made(folder / "python"), effort.plugins)
    await _start(config, _DESCRIBED_S)
    described = [await _start(config) for _ in range(effort.starts)]
    plugins, python = f"{effort.plugins} plugins", f"{effort.plugins} Python plugins"
    return Report(
        rows=[
            Row("start", f"{plugins}, newly pinned and copied", _figures(newly)),
            Row("start", f"{plugins}, pinned and copied before", _figures(again)),
            Row("start", f"{python}, described, pinned and copied before", _figures(described)),
        ],
        targets=[
            Target(f"seconds of a start, {plugins} newly pinned", _median(newly, 0), 2, issue=_ISSUE),
            Target(f"seconds of a start, {plugins} pinned before", _median(again, 0), 2, issue=_ISSUE),
            Target(f"seconds of a start, {python} described before", _median(described, 0), 2, issue=_ISSUE),
        ],
    )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _write_python_plugins(folder: Path, count: int) -> Path:
    entries = []
    for number in range(count):
        plugin = folder / f"plugin-{number}"
        plugin.mkdir()
        (plugin / "plugin.toml").write_text(_MANIFEST.format(number=number), encoding="utf-8")
        tools = "".join(_TOOL.format(number=number, tool=tool) for tool in range(TOOLS))
        (plugin / f"plugin_{number}.py").write_text(_MODULE.format(number=number) + tools, encoding="utf-8")
        entries.append(f'[[plugin]]\npath = "{plugin}"\n')
    return write_config(folder, "\n".join(entries))


async def _start(config: Path, timeout_s: float = READY_S) -> tuple[float, float]:
    """Seconds until it serves, and the processor time of it and its children."""
    begun = time.perf_counter()
    async with sidecar(config) as ours:
        await until_serving(ours.address, timeout_s)
        wall_s = time.perf_counter() - begun
        return wall_s, sum(psutil.Process(ours.pid).cpu_times()[:4])


def _median(starts: Sequence[tuple[float, float]], place: int) -> float:
    return median(each[place] for each in starts)


def _figures(starts: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {"start_s": _median(starts, 0), "cpu_s": _median(starts, 1)}
