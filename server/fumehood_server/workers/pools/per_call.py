"""Workers that serve one call each: some wait ready, one is taken by a call, another is made."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_sandbox import PythonModule

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.pools.backoff import Backoff
from fumehood_server.workers.pools.forked import Nursery
from fumehood_server.workers.pools.launched import Relaunch

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import CancelReason, InvocationResult, WorkerInfo
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.pools.shared import Verify
    from fumehood_server.workers.process.worker import ProcessWorker
    from fumehood_server.workers.settings import WorkerSettings


_REFILL_AFTER_S = 0.05
"""A zygote that is replaced takes half a processor for so long. Twenty trees that die at one deadline need less."""


class CallLease:
    """A worker for one call; see `WorkerLease`."""

    __slots__ = ("_pool", "worker")

    def __init__(self, pool: CallPool, worker: ProcessWorker) -> None:
        """The worker is counted as busy already."""
        self._pool: CallPool | None = pool
        self.worker = worker

    def release(self) -> None:
        """Give it back, for a next call if it had none."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self.worker)


class CallPool:
    """The same to its users as `Pool`, but for what a call shares with others: nothing.

    A Python plugin is imported once, by a zygote, and forked; any other program is launched anew. What they share: an
    order brings a worker by `on_fresh`, or an error by `on_failed`, or is lost and told by `on_lost`; `lost` tells of a
    worker's death.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        log: PluginLog,
        settings: WorkerSettings,
        ids: itertools.count[int],
        on_empty: Callable[[CallPool], None],
        verify: Verify | None = None,
        plugin_requests: PluginRequestHandler | None = None,
    ) -> None:
        """As of `Pool`."""
        self.spec = spec
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._settings = settings
        self._on_empty = on_empty
        self._verify = verify
        forks = isinstance(spec.program, PythonModule) and spec.program.forks > 0
        self._source: Nursery | Relaunch = (Nursery if forks else Relaunch)(
            spec,
            log=log,
            settings=settings,
            ids=ids,
            on_fresh=self._fresh_one,
            on_failed=self._failed,
            on_change=self._changed,
            on_lost=self._orders_lost,
            plugin_requests=plugin_requests,
        )
        self._fresh: deque[ProcessWorker] = deque()
        self._live: set[ProcessWorker] = set()
        self._waiting: deque[asyncio.Future[CallLease]] = deque()
        self._check: asyncio.Task[None] | None = None
        self._backoff = Backoff(first_s=settings.backoff_first_s, last_s=settings.backoff_last_s)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_at = self._loop.time()
        self._refill: asyncio.TimerHandle | None = None
        self._warm = False
        """Whether spares are kept: from the first call until nobody calls for long."""
        self._retired = False

    @property
    def is_empty(self) -> bool:
        """Whether it holds no process, nobody waits, and there is no failure to remember."""
        idle = not self._live and not self._waiting and self._check is None and self._source.is_idle
        return idle and self._refill is None and (self._retired or self._backoff.left_s(self._loop.time()) <= 0)

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its workers, the zygote among them."""
        return (*self._source.infos(), *(worker.info for worker in self._live))

    def try_acquire(self) -> CallLease | None:
        """A worker that nothing ran in, or None when there is none right now."""
        fresh = self._fresh
        while fresh:
            worker = fresh.popleft()
            if worker.state is WorkerState.READY:
                # The next one is ordered when this call is on its way.
                self._loop.call_soon(self._fill)
                return CallLease(self, worker)
        return None

    async def acquire(self) -> CallLease:
        """A worker, after a wait; see `WorkerPools.acquire`. Cancel it at will."""
        lease = self.try_acquire()
        if lease is not None:
            return lease
        left_s = self._backoff.left_s(self._loop.time())
        if not self._live and not self._source.pending and self._backoff.cause is not None and left_s > 0:
            raise WorkerUnavailableError(faults.backoff_error(self._backoff.cause, left_s))
        waiting: asyncio.Future[CallLease] = self._loop.create_future()
        self._waiting.append(waiting)
        self._warm = not self._retired
        self._fill()
        try:
            return await waiting
        except asyncio.CancelledError:
            # The worker may have been given in the same turn of the loop in which the caller gave up.
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                waiting.result().release()
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def give_back(self, worker: ProcessWorker) -> None:
        """A lease was released. A worker that had its call ends by itself."""
        self._used_at = self._loop.time()
        if worker.table.untouched and worker.state is WorkerState.READY:
            self._fresh.appendleft(worker)
            self._serve_waiting()
            self._end_if_retired()

    def retire(self) -> None:
        """End each worker once nobody uses it. Who waits is still served."""
        self._retired = True
        if not self._waiting:
            self._refill_no_more()
        self._end_if_retired()
        self._tell_if_empty()

    def refuse_waiting(self) -> None:
        """The sidecar shuts down: nobody gets a worker any more."""
        self._retired = True
        self._refill_no_more()
        self._fail_waiting(faults.shutdown_error(self.spec.plugin))

    def cancel_calls(self, reason: CancelReason) -> None:
        """Cancel all calls under way."""
        for worker in tuple(self._live):
            worker.table.cancel_all(reason)

    def calls(self) -> list[asyncio.Future[InvocationResult]]:
        """What the calls under way resolve."""
        return [done for worker in self._live for done in worker.table.unanswered]

    async def close(self) -> None:
        """End everything. Bounded: all end at the same time."""
        self.refuse_waiting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait((self._check,))
            self._check = None
        self._drop_fresh()
        for worker in tuple(self._live):
            worker.finish()
        await self._all_dead()
        await self._source.close()
        await self._all_dead()  # who was born meanwhile, and at once ended

    async def _all_dead(self) -> None:
        while self._live:
            await asyncio.wait([worker.dead for worker in self._live])

    def kill(self) -> None:
        """End every process at once, for an owner who can't wait."""
        self._refill_no_more()
        if self._check is not None:
            self._check.cancel()
        for worker in tuple(self._live):
            worker.kill()
        self._source.kill()

    def _fill(self, *, verified: bool = False) -> None:
        """Order what is wanted: a worker for everybody who waits, and the spares. `verified`: just now, for this."""
        if self._check is not None:
            return
        source = self._source
        wanted = len(self._waiting) + (source.spares if self._warm and not self._retired else 0)
        if len(self._fresh) + source.pending >= wanted:
            return
        left_s = self._backoff.left_s(self._loop.time())
        if left_s > 0:
            if self._waiting and self._refill is None:  # for a worker that has a call never serves another one
                self._refill = self._loop.call_later(left_s, self._fill_up)
            return
        if self._verify is not None and source.reads_files and not verified:
            self._check = self._loop.create_task(self._verify_files(), name=f"verify {self.spec.plugin}")
            return
        while len(self._fresh) + source.pending < wanted and len(self._live) + source.pending < source.most:
            source.order()
        if self._idle_timer is None and self._warm:
            self._idle_timer = self._loop.call_later(self._settings.idle_s, self._end_idle)

    async def _verify_files(self) -> None:
        """Ask whether a worker may be made from what lies there."""
        error: CallError | None = None
        try:
            reason = await self._verify(self.spec) if self._verify is not None else None
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            error = faults.internal_error(self.spec.plugin, exc)
        else:
            error = None if reason is None else faults.unverified_error(self.spec.plugin, reason)
        self._check = None
        if error is None:
            self._fill(verified=True)
        else:
            self._failed(error)
            # Who has a call serves no other one, and no wait makes the files what they were.
            self._fail_waiting(faults.backoff_error(error, self._backoff.left_s(self._loop.time())))
        self._tell_if_empty()

    def _fresh_one(self, worker: ProcessWorker) -> None:
        self._live.add(worker)
        if worker.state is WorkerState.READY:
            self._fresh.append(worker)
        self._serve_waiting()
        self._end_if_retired()

    def _failed(self, error: CallError) -> None:
        """No worker can be had right now."""
        now = self._loop.time()
        self._backoff.fail(now, error)
        self._log.problem(error.message)
        if not self._live:
            self._fail_waiting(faults.backoff_error(error, self._backoff.left_s(now)))
        elif self._waiting:
            self._fill()
        self._end_if_retired()
        self._tell_if_empty()

    def _orders_lost(self) -> None:
        """What was ordered does not come, through no fault of its own."""
        self._fill()
        self._tell_if_empty()

    def _changed(self, worker: ProcessWorker) -> None:
        """A worker takes no more calls, or is dead."""
        if worker in self._fresh:
            self._fresh.remove(worker)
        if worker.state is not WorkerState.DEAD:
            return
        self._live.discard(worker)
        for tainted in self._source.lost(worker):
            if tainted in self._fresh:
                self._fresh.remove(tainted)
                tainted.kill()
        if worker.calls_served:
            self._backoff.reset()
        if not self._live and not self._source.pending and self._backoff.cause is not None:
            left_s = self._backoff.left_s(self._loop.time())
            if left_s > 0:
                self._fail_waiting(faults.backoff_error(self._backoff.cause, left_s))
        self._fill_in_time()
        self._end_if_retired()
        self._tell_if_empty()

    def _fill_in_time(self) -> None:
        """Order for who waits at once, and spares a little later: other calls may be ending, which must not wait."""
        if self._waiting:
            self._fill()
        elif self._refill is None and self._warm and not self._retired:
            self._refill = self._loop.call_later(_REFILL_AFTER_S, self._fill_up)

    def _fill_up(self) -> None:
        self._refill = None
        self._fill()
        self._tell_if_empty()

    def _refill_no_more(self) -> None:
        if self._refill is not None:
            self._refill.cancel()
            self._refill = None

    def _serve_waiting(self) -> None:
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            lease = self.try_acquire()
            if lease is None:
                self._fill()
                return
            self._waiting.popleft().set_result(lease)

    def _fail_waiting(self, error: CallError) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(WorkerUnavailableError(error))

    def _end_idle(self) -> None:
        self._idle_timer = None
        left_s = self._used_at + self._settings.idle_s - self._loop.time()
        busy = self._waiting or self._source.pending or len(self._live) > len(self._fresh)
        if busy or left_s > 0:
            self._idle_timer = self._loop.call_later(max(left_s, 1.0), self._end_idle)
            return
        self._warm = False
        self._refill_no_more()
        self._drop_fresh()
        self._source.finish()

    def _end_if_retired(self) -> None:
        if self._retired and not self._waiting:
            self._drop_fresh()
            if not self._live:
                self._source.finish()

    def _drop_fresh(self) -> None:
        while self._fresh:
            self._fresh.popleft().kill()

    def _tell_if_empty(self) -> None:
        if self.is_empty:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
            self._on_empty(self)
