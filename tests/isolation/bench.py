"""Workers that serve one call each, in the real sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import textwrap
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from fumehood_sandbox import Level, Limits, Policy, PythonModule
from fumehood_sandbox.outside.identity import identity_for
from fumehood_server.model.call import CallContext, CallUpdate
from fumehood_server.model.plugin import Kind, WorkerSpec
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import Attempt, CancelReason, Invocation, InvocationResult
from fumehood_server.plugins.launch.program import BuiltProgram, build
from fumehood_server.workers import LogSink, Pools, WorkerSettings
from fumehood_server.workers.process.worker import ProcessWorker

from tests.faults.bench import BOUND_S, POLL_S, ended

FOLDER = Path(__file__).parent / "plugin"
SETTINGS = WorkerSettings(
    start_timeout_s=30.0,
    cancel_grace_s=0.5,
    terminate_grace_s=0.2,
    linger_s=0.5,
    pipe_grace_s=0.5,
    backoff_first_s=0.05,
)


@dataclass
class Bench:
    """Pools of the plugin `probe`."""

    pools: Pools
    logs: LogSink

    def spec(
        self,
        module: str = "probe",
        *,
        folder: Path = FOLDER,
        isolation: Isolation = Isolation.CALL,
        write: tuple[str, ...] = (),
        limits: Limits | None = None,
    ) -> WorkerSpec:
        built = build(Kind.PYTHON, folder, entrypoint=f"{module}:plugin")
        return made(module, built, isolation=isolation, write=write, limits=limits)

    async def run(self, code: str, *, spec: WorkerSpec | None = None, tool: str = "run") -> Any:
        """What one call of `run` with this code returns."""
        result = await self.call(code, spec=spec, tool=tool)
        assert result.error is None, result.error
        return json.loads(result.details_json)

    @contextlib.asynccontextmanager
    async def holding(self, code: str, *, spec: WorkerSpec | None = None) -> AsyncIterator[None]:
        """While the block runs, another call has executed this code and goes on."""
        said: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def heard(update: CallUpdate) -> None:
            if not said.done():
                said.set_result(update.message)

        lease = await self.pools.acquire(spec or self.spec())
        held = f"{textwrap.dedent(code)}\nctx.update('held')\nctx.sleep(60)"
        handle = lease.worker.invoke(replace(invocation(held), on_update=heard))
        try:
            async with asyncio.timeout(BOUND_S):
                await said
            yield
        finally:
            await handle.end(CancelReason.CALLER)
            lease.release()

    @contextlib.asynccontextmanager
    async def started(self, code: str, *, spec: WorkerSpec) -> AsyncIterator[tuple[Attempt, ProcessWorker]]:
        """A call that has said `ctx.update("ready")`."""
        ready = asyncio.Event()
        lease = await self.pools.acquire(spec)
        handle = lease.worker.invoke(replace(invocation(code), on_update=lambda _update: ready.set()))
        try:
            async with asyncio.timeout(BOUND_S):
                await ready.wait()
            yield handle, lease.worker
        finally:
            lease.release()

    def zygotes(self, spec: WorkerSpec) -> set[int]:
        """Process ids of bubblewrap around the zygotes of this spec."""
        infos = [info for info in self.pools.workers() if info.spec.key == spec.key]
        return {info.process_id for info in infos if "zygote" in info.worker_id and info.process_id}

    def processes_of(self, spec: WorkerSpec) -> set[int]:
        """Process ids of everything below the zygotes, by what runs as their identity."""
        user = identity_for(spec.policy.identity).user
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    found.add(int(entry.name))
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        """Until the kernel has done what was asked of it."""
        async with asyncio.timeout(BOUND_S):
            while not condition():  # noqa: ASYNC110 - nothing tells when another process's children are gone
                await asyncio.sleep(POLL_S)

    async def call(self, code: str, *, spec: WorkerSpec | None = None, tool: str = "run") -> InvocationResult:
        """One call to its end."""
        async with asyncio.timeout(BOUND_S):
            lease = await self.pools.acquire(spec or self.spec())
            try:
                return await ended(lease.worker.invoke(invocation(code, tool=tool)))
            finally:
                lease.release()


def children() -> set[int]:
    """Process ids of this process's own, those among them that nobody has reaped."""
    return {child.pid for child in psutil.Process().children()}


def fork_supervisors() -> set[int]:
    """Those of them that supervise zygotes: the only ones without a pipe to anybody."""
    found = set()
    for pid in children():
        with contextlib.suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull):
                found.add(pid)
    return found


def made(
    name: str,
    built: BuiltProgram,
    *,
    isolation: Isolation = Isolation.CALL,
    write: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> WorkerSpec:
    program = built.program
    if isolation is Isolation.CALL and isinstance(program, PythonModule):
        program = replace(program, forks=10)
    policy = Policy(
        level=Level.WRITE if write else Level.NONE,
        runtime=built.runtime,
        write=write,
        environment=built.environment,
        working_directory=built.working_directory,
        identity=f"{name} of {os.getpid()}",  # `processes_of` counts the processes of its user
        limits=limits or Limits(),
    )
    return WorkerSpec(
        key=f"{name}:{isolation}:{policy.digest()}",
        plugin=name,
        plugin_digest="sha256:0",
        policy=policy,
        program=program,
        output_bytes=1 << 20,
        max_workers=2,
        isolation=isolation,
    )


def invocation(code: str, *, tool: str = "run") -> Invocation:
    return Invocation(
        call_id="call",
        tool=tool,
        arguments_json=json.dumps({"code": textwrap.dedent(code)}),
        context=CallContext(request_id="r"),
        attempt=1,
        timeout_s=30.0,
        on_update=None,
    )
