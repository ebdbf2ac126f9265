"""From nothing to a plugin that can be called, beside what its imports alone take, and beside the barest sandbox."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import structlog
from fumehood.v1 import plugin_pb2, tool_pb2
from fumehood_sdk.wire import varint
from fumehood_server.config.load import load_config
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.plugins.catalog import Catalog
from fumehood_server.workers import LogSink, Pools

from bench.harness.processes import python, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, ratio
from bench.harness.sidecar import ECHO, echo_config

IMPORTS = "python -c 'import pydantic, google.protobuf'"
SDK, WORKER = "Python plugin, no sandbox", "Python plugin, sandboxed"
BWRAP = "bwrap + python3 -c pass"

_READY_S = 30.0
"""Bound of one start on a busy machine; it takes a tenth of a second on an idle one."""

_HELLO = plugin_pb2.HostFrame(
    hello=plugin_pb2.Hello(
        protocol_versions=[1],
        plugin="echo",
        side_effects=tool_pb2.SIDE_EFFECTS_NONE,
        max_frame_bytes=4 * 1024 * 1024,
        max_concurrent_calls=8,
    )
)


async def measure(effort: Effort, folder: Path) -> Report:
    """Start each several times, turn by turn."""
    async with worker_pools(echo_config(folder)) as (pools, catalog):
        spec = spec_of(catalog, "echo")
        starts: dict[str, Callable[[], Awaitable[None]]] = {
            IMPORTS: lambda: _run(sys.executable, "-c", "import pydantic, google.protobuf"),
            SDK: sdk_alone,
            WORKER: lambda: start_worker(pools, spec),
        }
        if bwrap := shutil.which("bwrap"):
            starts[BWRAP] = lambda: _run(bwrap, *_NAMESPACES, sys.executable, "-c", "pass")
        times: dict[str, list[float]] = {name: [] for name in starts}
        for _ in range(effort.starts + 1):
            for name, start in starts.items():
                begun = time.perf_counter()
                await start()
                times[name].append((time.perf_counter() - begun) * 1000)
    warm = {name: found[1:] for name, found in times.items()}  # the first read files from the disk
    return Report(
        rows=[Row("ready", name, {"median_ms": median(found)}) for name, found in warm.items()],
        targets=[
            Target("Python plugin's Ready / its imports alone", ratio(warm[SDK], warm[IMPORTS]), 1.3),
            Target("sandboxed Python plugin's Ready / its imports alone", ratio(warm[WORKER], warm[IMPORTS]), 1.3),
        ],
        notes=[] if BWRAP in starts else ["no bwrap on PATH, so no bare one was measured"],
    )


_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--die-with-parent"),
)


@asynccontextmanager
async def worker_pools(path: Path) -> AsyncIterator[tuple[Pools, Catalog]]:
    """The part of a sidecar that starts workers, and the plugins of a configuration."""
    config = load_config(path)
    log = structlog.wrap_logger(structlog.testing.CapturingLogger())
    async with Pools(LogSink(lambda _plugin, _line: None)) as pools:
        yield pools, await Catalog.load(config, describe=pools.describe, log=log)


def spec_of(catalog: Catalog, name: str) -> WorkerSpec:
    """What a worker of a tool is started by.

    Raises:
        RuntimeError: its plugin was refused.
    """
    tool = catalog.find(name)
    if tool is None or tool.spec is None:
        raise RuntimeError(f"the plugin of {name} was refused: {[each.reasons for each in catalog.plugins]}")
    return tool.spec


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(_READY_S):
        if await process.wait():
            raise RuntimeError(f"{command[0]} failed")


async def sdk_alone() -> None:
    """Start the plugin as the sidecar does, but for the sandbox, and wait for the first bytes of its `Ready`."""
    async with running(python("fumehood_sdk.main", "echo:plugin", str(ECHO))) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a plugin is always started with pipes")
        hello = _HELLO.SerializeToString()
        process.stdin.write(varint.encode(len(hello)) + hello)
        async with asyncio.timeout(_READY_S):
            if not await process.stdout.read(1):
                raise RuntimeError("the plugin ended before it was ready")


async def start_worker(pools: Pools, spec: WorkerSpec) -> None:
    """Start a worker as a first call does, and end it."""
    lease = await pools.acquire(spec)
    lease.release()
    await pools.retire(frozenset((spec.key,)))
