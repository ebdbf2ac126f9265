"""All workers of the sidecar."""

from __future__ import annotations

import asyncio
import itertools
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.tool import Isolation
from fumehood_server.model.worker import CancelReason
from fumehood_server.workers import faults
from fumehood_server.workers.describe import ReadyInfo, describe
from fumehood_server.workers.pools.per_call import CallLease, CallPool
from fumehood_server.workers.pools.shared import Lease, Pool, Verify
from fumehood_server.workers.settings import WorkerSettings

if TYPE_CHECKING:
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import WorkerInfo
    from fumehood_server.workers.output.logs import LogSink


class Pools:
    """Workers by spec (`model.worker.WorkerPools`). Used as `async with`, on the loop of one thread.

    Leaving the block ends every process, the calls that are under way with it: `close` first where they should have
    time to finish.
    """

    def __init__(
        self,
        logs: LogSink,
        settings: WorkerSettings | None = None,
        *,
        verify: Verify | None = None,
        plugin_requests: PluginRequestHandler | None = None,
    ) -> None:
        """`logs` takes what the plugins say; `verify` is asked before each start whether it may be.

        `plugin_requests` answers what calls ask of the sidecar; without it all is refused.
        """
        self._verify = verify
        self._plugin_requests = plugin_requests
        self._logs = logs
        self._settings = settings or WorkerSettings()
        self._pools: dict[str, Pool | CallPool] = {}
        self._retired: set[Pool | CallPool] = set()
        self._ids = itertools.count(1)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(0.0)

    def try_acquire(self, spec: WorkerSpec) -> Lease | CallLease | None:
        """A place on a warm worker; see `WorkerPools`."""
        pool = self._pools.get(spec.key)
        return None if pool is None or self._closed else pool.try_acquire()

    async def acquire(self, spec: WorkerSpec) -> Lease | CallLease:
        """A place, after starting a worker or waiting for one; see `WorkerPools`. Bounded by its caller's cancellation.

        After a failed start it raises at once for a while; `details.retry_after_s` says for how long.
        """
        if self._closed:
            raise WorkerUnavailableError(faults.shutdown_error(spec.plugin))
        pool = self._pools.get(spec.key)
        if pool is None:
            kind = CallPool if spec.isolation is Isolation.CALL else Pool
            pool = self._pools[spec.key] = kind(
                spec,
                log=self._logs.of(spec.plugin),
                settings=self._settings,
                ids=self._ids,
                on_empty=self._forget,
                verify=self._verify,
                plugin_requests=self._plugin_requests,
            )
        return await pool.acquire()

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every worker; see `WorkerPools`."""
        return tuple(info for pool in self._all() for info in pool.infos())

    async def retire(self, keys: frozenset[str]) -> None:
        """Take no new calls on workers of these specs; see `WorkerPools`.

        Comes back at once: workers end when their calls are over, and `close` waits for them. A spec with the same
        key that is wanted later gets new workers.
        """
        for key in keys:
            pool = self._pools.pop(key, None)
            if pool is not None:
                self._retired.add(pool)
                pool.retire()

    async def describe(self, spec: WorkerSpec) -> ReadyInfo:
        """What a plugin says of itself; see `describe.describe`."""
        return await describe(spec, logs=self._logs, settings=self._settings)

    async def close(self, grace_s: float) -> None:
        """Give out no more places, let calls under way finish for `grace_s`, cancel the rest, end every process.

        Who waits for a place is refused. Takes `grace_s`, the rungs of a call and those of a worker at most. Cancelled
        in between, it kills what is left. Idempotent.
        """
        self._closed = True
        pools = self._all()
        try:
            for pool in pools:
                pool.refuse_waiting()
            if grace_s > 0:
                await _all_done(pools, grace_s)
            for pool in pools:
                pool.cancel_calls(CancelReason.SHUTDOWN)
            await _all_done(pools, None)
            await asyncio.gather(*(pool.close() for pool in pools))
            self._pools.clear()
            self._retired.clear()
        except BaseException:
            for pool in pools:
                pool.kill()
            raise

    def _all(self) -> tuple[Pool | CallPool, ...]:
        return (*self._pools.values(), *self._retired)

    def _forget(self, pool: Pool | CallPool) -> None:
        self._retired.discard(pool)
        if self._pools.get(pool.spec.key) is pool:
            del self._pools[pool.spec.key]


async def _all_done(pools: tuple[Pool | CallPool, ...], timeout_s: float | None) -> None:
    """Wait for the calls under way. Without a timeout their own rungs bound it."""
    calls = [call for pool in pools for call in pool.calls()]
    if calls:
        await asyncio.wait(calls, timeout=timeout_s)
