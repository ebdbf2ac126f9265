"""Pools with a hostile plugin under small limits, and an honest one that must be served meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level, Limits, Policy, PythonModule
from fumehood_server.model.plugin import Kind, WorkerSpec
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import InvocationResult
from fumehood_server.plugins.launch.program import build
from fumehood_server.workers import LogSink, Pools, WorkerSettings

from tests.faults.bench import ended, invocation

FOLDER = Path(__file__).parent / "plugin"
MIB = 1 << 20
LIMITS = Limits(
    memory_bytes=256 * MIB,
    cpu_s=100,
    processes=24,
    open_files=64,
    file_size_bytes=8 * MIB,
    scratch_bytes=16 * MIB,
)
SETTINGS = WorkerSettings(cancel_grace_s=0.3, terminate_grace_s=0.2, linger_s=0.5)


def spec_of(
    *,
    cgroups: bool = True,
    level: Level = Level.NONE,
    identity: str = "hostile",
    cpu_s: int = 60,
    memory_bytes: int = 0,
    isolation: Isolation = Isolation.PROCESS,
) -> WorkerSpec:
    built = build(Kind.PYTHON, FOLDER, entrypoint="hostile:plugin")
    program = built.program
    assert isinstance(program, PythonModule)
    policy = Policy(
        level=level,
        runtime=built.runtime,
        environment=built.environment,
        working_directory=built.working_directory,
        # Without a cgroup the kernel counts all processes of its user: other tests' run at the same time.
        identity=f"{identity} of {os.getpid()}",
        cgroups=cgroups,
        # Where no cgroup counts, the address space has to leave room for an interpreter.
        limits=replace(LIMITS, memory_bytes=memory_bytes or (LIMITS.memory_bytes if cgroups else 384 * MIB)),
    )
    return WorkerSpec(
        key=f"{identity}:{cgroups}:{level}:{cpu_s}:{memory_bytes}:{isolation}",
        plugin="hostile",
        plugin_digest="sha256:0",
        policy=policy,
        program=replace(program, forks=6) if isolation is Isolation.CALL else program,
        output_bytes=1 * MIB,
        cpu_s=cpu_s,
        log_bytes_per_second=512 * 1024,
        max_workers=1,
        max_concurrent_calls=8,
        isolation=isolation,
    )


@dataclass
class Hood:
    """Pools, the hostile plugin's spec, and the honest one's."""

    pools: Pools
    logs: LogSink
    spec: WorkerSpec
    honest_spec: WorkerSpec

    async def call(self, tool: str, *, spec: WorkerSpec | None = None, **arguments: Any) -> InvocationResult:
        """One call to its end."""
        lease = await self.pools.acquire(spec or self.spec)
        try:
            return await ended(lease.worker.invoke(invocation(tool, arguments_json=json.dumps(arguments))))
        finally:
            lease.release()

    async def honest(self) -> None:
        """Another plugin answers."""
        result = await self.call("echo", spec=self.honest_spec, text="well")
        assert result.error is None, result.error


def value_in(result: InvocationResult) -> Any:
    assert result.error is None, result.error
    return json.loads(result.details_json)
