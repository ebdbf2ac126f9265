"""A hundred plugins with ten tools each: what they cost while nobody calls, and what listing them takes."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import psutil

from bench.harness.contender import contender
from bench.harness.memory import memory_row
from bench.harness.processes import python, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, ratio
from bench.harness.sidecar import sidecar, until_serving, write_config

TOOLS = 10
"""Tools of each plugin."""

_LISTINGS, _ECHOES = 20, 200
"""Calls of one round of each contender."""

_SETTLE_S = 1.0
"""After the last listing, until the sidecar is left alone."""

_MANIFEST = """
[plugin]
name = "plugin-{number}"
version = "1.0.0"
kind = "cli"
binary = "cat"
"""

_TOOL = """
[[tool]]
name = "tool_{number}_{tool}"
description = "Show a file with its lines numbered. It is one of a thousand, and described as fully as tools are."
side_effects = "read"
idempotent = true
requires = ["read"]
timeout_s = 10
argv = ["--number", "--", "{{path}}"]

[tool.input_schema]
type = "object"
additionalProperties = false
required = ["path"]

[tool.input_schema.properties.path]
type = "string"
description = "Path of the file."
"""


def write_plugins(folder: Path, count: int) -> Path:
    """Write that many plugins and a configuration that grants each a folder to read."""
    granted = folder / "data"
    granted.mkdir()
    entries = []
    for number in range(count):
        plugin = folder / f"plugin-{number}"
        plugin.mkdir()
        tools = "".join(_TOOL.format(number=number, tool=tool) for tool in range(TOOLS))
        (plugin / "plugin.toml").write_text(_MANIFEST.format(number=number) + tools, encoding="utf-8")
        entries.append(f'[[plugin]]\npath = "{plugin}"\nread = ["{granted}"]\n')
    return write_config(folder, "\n".join(entries))


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure ListTools beside the bare echo, then processor time and memory of the idle sidecar."""
    name = f"{effort.plugins} plugins, {effort.plugins * TOOLS} tools"
    begun = time.perf_counter()
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(sidecar(write_plugins(folder, effort.plugins)))
        await until_serving(ours.address)
        start_s = time.perf_counter() - begun
        where = f"unix:{folder}/echo.sock"
        await stack.enter_async_context(running(python("bench.peers.grpc_server", where)))
        listing = await stack.enter_async_context(
            contender("ListTools", python("bench.clients.list_tools", ours.address, str(effort.plugins * TOOLS)))
        )
        bare = await stack.enter_async_context(
            contender("bare echo", python("bench.clients.grpc_echo", where, str(folder)))
        )
        listings, echoes = [], []
        for _ in range(effort.rounds):
            listings.append((await listing.load(in_flight=1, calls=_LISTINGS)).p50_ms)
            echoes.append((await bare.load(in_flight=1, calls=_ECHOES)).p50_ms)
        await asyncio.sleep(_SETTLE_S)
        share = await _busy_share(ours.pid, effort.idle_s)
        figures = {"list_p50_ms": median(listings), "start_s": start_s, "idle_core_percent": share * 100}
        report = Report(
            rows=[Row("catalog", name, figures)],
            targets=[
                Target(f"ListTools of {effort.plugins * TOOLS} / bare echo", ratio(listings, echoes), 20),
                Target(f"idle with {name}: percent of a core", share * 100, 1),
            ],
        )
        memory_row(report, f"sidecar with {name}", (ours.pid,))
        return report


async def _busy_share(pid: int, seconds: float) -> float:
    """Return how much of one core a process and its descendants take while they are left alone."""
    before, begun = _busy_ns(pid), time.perf_counter_ns()
    await asyncio.sleep(seconds)
    return (_busy_ns(pid) - before) / (time.perf_counter_ns() - begun)


def _busy_ns(pid: int) -> int:
    """Return the processor time of all threads of a process and its descendants, as the scheduler counts it."""
    parent = psutil.Process(pid)
    return sum(
        int(schedstat.read_text(encoding="ascii").split()[0])
        for process in (parent, *parent.children(recursive=True))
        for schedstat in Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    )
