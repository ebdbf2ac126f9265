"""All workers of the sidecar, by spec."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import CancelReason
from fumehood_server.telemetry import get_logger
from fumehood_server.workers import faults
from fumehood_server.workers.pools.describe import ReadyInfo, describe
from fumehood_server.workers.pools.interface import Pool, PoolContext, Verify
from fumehood_server.workers.pools.per_call import PerCallPool
from fumehood_server.workers.pools.shared import SharedPool
from fumehood_server.workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fumehood_server.model.journal import Journal
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import WorkerInfo, WorkerLease
    from fumehood_server.workers.output.logs import LogSink
    from fumehood_server.workers.process.attempt import WorkerAttempt


class Pools:
    """Workers by spec (`model.worker.WorkerPools`). Used as `async with`, on the loop of one thread.

    The life of each pool is a task of the block. Leaving the block ends every process, the calls that are under way
    with it: `close` first where they should have time to finish.
    """

    def __init__(
        self,
        logs: LogSink,
        settings: WorkerSettings | None = None,
        *,
        verify: Verify | None = None,
        plugin_requests: PluginRequestHandler | None = None,
        journal: Journal | None = None,
    ) -> None:
        """`logs` takes what the plugins say; `verify` is asked before each start whether it may be.

        `journal` is told which workers started and ended.

        `plugin_requests` answers what calls ask of the sidecar; without it all is refused.
        """
        self._verify = verify
        self._plugin_requests = plugin_requests
        self._logs = logs
        self._journal = journal
        self._settings = settings or WorkerSettings()
        self._tasks = asyncio.TaskGroup()
        self._pool_tasks: dict[Pool, asyncio.Task[None]] = {}
        """The task of every pool that has not ended, of those that are retired as well."""
        self._pools: dict[str, Pool] = {}
        """Those that take calls, by the key of their spec."""
        self._ids = itertools.count(1)
        self._closed = False
        self.starts: Counter[tuple[str, str]] = Counter()
        """Processes started so far, by plugin and kind: "zygote", or the isolation of its calls."""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close(0.0)
        finally:
            await self._tasks.__aexit__(None, None, None)

    def try_acquire(self, spec: WorkerSpec) -> WorkerLease | None:
        """A place on a warm worker; see `WorkerPools`."""
        pool = self._pools.get(spec.key)
        return None if pool is None or self._closed else pool.try_acquire()

    async def acquire(self, spec: WorkerSpec) -> WorkerLease:
        """A place, after starting a worker or waiting for one; see `WorkerPools`. Bounded by its caller's cancellation.

        After a failed start it raises at once for a while; `details.retry_after_s` says for how long.
        """
        if self._closed:
            raise WorkerUnavailableError(faults.shutdown_error(spec.plugin))
        pool = self._pools.get(spec.key)
        if pool is None or pool.ended:
            pool = self._pools[spec.key] = self._start_pool(spec)
        return await pool.acquire()

    def _start_pool(self, spec: WorkerSpec) -> Pool:
        context = PoolContext(
            spec=spec,
            log=self._logs.of(spec.plugin),
            settings=self._settings,
            ids=self._ids,
            verify=self._verify,
            plugin_requests=self._plugin_requests,
            journal=self._journal,
            starts=self.starts,
        )
        pool: Pool = PerCallPool(context) if spec.isolation is Isolation.CALL else SharedPool(context)
        self._pool_tasks[pool] = self._tasks.create_task(self._run_pool(pool), name=f"pool of {spec.plugin}")
        return pool

    async def _run_pool(self, pool: Pool) -> None:
        """One pool, from its first caller until it is empty."""
        try:
            await pool.run()
        except Exception as problem:  # noqa: BLE001 - a fault of one pool must not end the others
            get_logger().error("a pool failed", exc_info=problem, plugin=pool.spec.plugin)
            pool.refuse_waiting()
        finally:
            del self._pool_tasks[pool]
            if self._pools.get(pool.spec.key) is pool:
                del self._pools[pool.spec.key]

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every worker; see `WorkerPools`."""
        return tuple(info for pool in self._pool_tasks for info in pool.infos())

    async def retire(self, keys: frozenset[str]) -> None:
        """Take no new calls on workers of these specs; see `WorkerPools`.

        Comes back at once: workers end when their calls are over, and `close` waits for them. A spec with the same
        key that is wanted later gets new workers.
        """
        for key in keys:
            pool = self._pools.pop(key, None)
            if pool is not None:
                pool.retire()

    async def describe(self, spec: WorkerSpec, plugin_requests: PluginRequestHandler | None = None) -> ReadyInfo:
        """What a plugin says of itself; see `describe.describe`. By default its requests go where those of calls go."""
        requests = self._plugin_requests if plugin_requests is None else plugin_requests
        return await describe(spec, logs=self._logs, settings=self._settings, plugin_requests=requests)

    async def close(self, grace_s: float) -> None:
        """Give out no more places, let calls under way finish for `grace_s`, cancel the rest, end every process.

        Who waits for a place is refused. Takes `grace_s`, the steps of ending a call and those of a worker at most.
        Cancelled in between, it kills what is left. Idempotent.
        """
        self._closed = True
        try:
            for pool in self._pool_tasks:
                pool.refuse_waiting()
            if grace_s > 0:
                await _all_ended(self._unanswered(), grace_s)
            await _cancelled(self._unanswered())
            for pool in self._pool_tasks:
                pool.finish()
            if self._pool_tasks:
                await asyncio.wait(tuple(self._pool_tasks.values()))
        except BaseException:
            for pool in self._pool_tasks:
                pool.kill()
            raise

    def _unanswered(self) -> list[WorkerAttempt]:
        return [attempt for pool in self._pool_tasks for attempt in pool.unanswered()]


async def _all_ended(attempts: Iterable[WorkerAttempt], within_s: float) -> None:
    """Wait for calls to end by themselves."""
    try:
        async with asyncio.timeout(within_s):
            for attempt in attempts:
                await attempt.result()
    except TimeoutError:
        return


async def _cancelled(attempts: Iterable[WorkerAttempt]) -> None:
    """End calls, all at the same time. The steps of ending a call bound it."""
    async with asyncio.TaskGroup() as tasks:
        for attempt in attempts:
            tasks.create_task(attempt.end(CancelReason.SHUTDOWN))
