"""A misbehaving plugin in the real sandbox, beside an honest one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fumehood_sandbox import Level, Policy
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallContext, CallError, CallUpdate
from fumehood_server.model.plugin import Kind, WorkerSpec
from fumehood_server.model.worker import Attempt, Invocation, InvocationResult, Worker, WorkerState
from fumehood_server.plugins.launch.program import build
from fumehood_server.workers import LogSink, Pools, WorkerSettings

FOLDER = Path(__file__).parent / "plugin"
BOUND_S = 60.0
"""Far above every bound of the code under test: reached only when one is missing."""
POLL_S = 0.005
"""Between looks at what tells nobody. Without it a wait would take the processor from what it waits for."""

SETTINGS = WorkerSettings(
    start_timeout_s=30.0, cancel_grace_s=0.3, terminate_grace_s=0.2, linger_s=0.5, pipe_grace_s=0.5, frame_stall_s=2.0
)


def misbehaving(
    case: str, token: str, *, level: Level = Level.NONE, max_workers: int = 1, plugin: str = ""
) -> WorkerSpec:
    python = str(Path(sys.executable).resolve())
    built = build(Kind.EXECUTABLE, FOLDER, command=(python, "-I", "-S", "misbehave.py", case, token))
    policy = Policy(
        level=level,
        runtime=built.runtime,
        environment=built.environment,
        working_directory=built.working_directory,
        identity=plugin or case,
    )
    return WorkerSpec(
        key=f"{case}:{token}:{level}",
        plugin=plugin or case,
        plugin_digest="sha256:0",
        policy=policy,
        program=built.program,
        output_bytes=1 << 20,
        max_workers=max_workers,
    )


def processes(token: str) -> list[str]:
    """Command lines of all live processes, of any parent, session and namespace, that carry the token."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if token.encode() in line:
                found.append(f"{entry.name} {line!r}")
    return found


def invocation(tool: str, updates: Updates | None = None, arguments_json: str = "{}") -> Invocation:
    return Invocation(
        call_id=f"call-{tool}",
        tool=tool,
        arguments_json=arguments_json,
        context=CallContext(request_id="r"),
        attempt=1,
        timeout_s=30.0,
        on_update=updates,
    )


async def ended(attempt: Attempt) -> InvocationResult:
    async with asyncio.timeout(BOUND_S):
        return await attempt.result()


async def until_dead(worker: Worker) -> None:
    async with asyncio.timeout(BOUND_S):
        while worker.state is not WorkerState.DEAD:  # type: ignore[attr-defined] # noqa: ASYNC110 - a process's; nothing tells
            await asyncio.sleep(POLL_S)


def error_of(result: InvocationResult) -> CallError:
    assert result.error is not None, result
    return result.error


@dataclass
class Bench:
    """Pools with an honest plugin beside the one under test."""

    pools: Pools
    logs: LogSink
    closed: bool = False
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def spec(self, case: str = "serve", *, level: Level = Level.NONE, max_workers: int = 1) -> WorkerSpec:
        return misbehaving(case, self.token, level=level, max_workers=max_workers)

    async def call(self, spec: WorkerSpec, tool: str, updates: Updates | None = None) -> InvocationResult:
        """One call to its end."""
        lease = await self.pools.acquire(spec)
        try:
            return await ended(lease.worker.invoke(invocation(tool, updates)))
        finally:
            lease.release()

    async def start_error(self, spec: WorkerSpec) -> CallError:
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(WorkerUnavailableError) as caught:
                await self.pools.acquire(spec)
        return caught.value.error

    async def honest(self) -> None:
        """The control: another plugin is served meanwhile."""
        assert (await self.call(self.honest_spec, "echo")).content[0].text == "echo"

    @property
    def honest_spec(self) -> WorkerSpec:
        return misbehaving("serve", "honest" + self.token[::-1], plugin="honest")

    @contextlib.asynccontextmanager
    async def sole_worker(self, spec: WorkerSpec) -> AsyncIterator[Worker]:
        """A worker that is leased within the block."""
        lease = await self.pools.acquire(spec)
        try:
            yield lease.worker
        finally:
            lease.release()

    async def until_gone(self) -> None:
        """Wait until every worker of the plugin under test is dead, and see that none of its processes is left."""
        async with asyncio.timeout(BOUND_S):
            while any(self.token in info.spec.key and info.process_id for info in self.pools.workers()):  # noqa: ASYNC110 - nothing tells of a worker's end
                await asyncio.sleep(POLL_S)
        assert self.left() == []

    def left(self) -> list[str]:
        return processes(self.token)


class Updates:
    """Takes the updates of one call, and can be waited for."""

    def __init__(self) -> None:
        self.seen: list[CallUpdate] = []
        self._arrived = asyncio.Event()

    def __call__(self, update: CallUpdate) -> None:
        self.seen.append(update)
        self._arrived.set()

    async def first(self) -> CallUpdate:
        async with asyncio.timeout(BOUND_S):
            await self._arrived.wait()
        return self.seen[0]
