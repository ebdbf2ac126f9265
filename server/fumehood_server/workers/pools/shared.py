"""A pool of warm workers, each of which serves many calls."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from typing import TYPE_CHECKING, NamedTuple

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.waiters import WaiterQueue
from fumehood_server.model.worker import WorkerInfo, WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.pools.backoff import Backoff
from fumehood_server.workers.pools.interface import PoolContext, Wakeup, fail_waiting
from fumehood_server.workers.process.start import started_worker

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.process.attempt import WorkerAttempt
    from fumehood_server.workers.process.worker import ProcessWorker


class PooledWorker:
    """A worker with the number of its concurrent calls that are leased."""

    __slots__ = ("idle_since", "taken", "worker")

    def __init__(self, worker: ProcessWorker, now: float) -> None:
        """A worker that nobody uses yet."""
        self.worker = worker
        self.taken = 0
        self.idle_since = now


class Lease:
    """See `WorkerLease`."""

    __slots__ = ("_pool", "_pooled", "worker")

    def __init__(self, pool: SharedPool, pooled: PooledWorker) -> None:
        """Counted in `pooled.taken` already."""
        self._pool: SharedPool | None = pool
        self._pooled = pooled
        self.worker = pooled.worker

    def release(self) -> None:
        """See `WorkerLease`."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self._pooled)


class _Start(NamedTuple):
    """The start of a worker that is not ready yet."""

    info: WorkerInfo
    """As the operator sees it."""
    task: asyncio.Task[None]
    """Of the worker's whole life."""


class SharedPool:
    """Workers with one spec (`interface.Pool`).

    The order for somebody who wants a lease: one of the least loaded worker; else a wait in line, while one start at a
    time adds a worker as long as the line is not empty and there are fewer than `spec.max_workers`.
    """

    def __init__(self, context: PoolContext) -> None:
        """Without workers yet."""
        self._context = context
        self.spec: WorkerSpec = context.spec
        self.ended = False
        self._clock = asyncio.get_running_loop().time
        self._workers: list[PooledWorker] = []
        self._waiters: WaiterQueue[Lease] = WaiterQueue()
        self._wakeup = Wakeup()
        self._start: _Start | None = None
        """One at a time."""
        settings = context.settings
        self._backoff = Backoff(first_s=settings.backoff_first_s, last_s=settings.backoff_last_s)
        self._changes = Backoff(first_s=settings.backoff_first_s, last_s=settings.backoff_last_s)
        """Of workers that were replaced since their tools had changed: how long the next one is kept."""
        self._retired = False

    async def run(self) -> None:
        """See `interface.Pool`."""
        async with asyncio.TaskGroup() as tasks:
            while not self._is_empty:
                self._waiters.serve(self.try_acquire)
                self._end_idle()
                self._fail_waiting_if_hopeless()
                if self._start_is_due:
                    worker_id = self._context.new_id()
                    task = tasks.create_task(self._run_worker(worker_id), name=worker_id)
                    self._start = _Start(self._info_without_process(worker_id, WorkerState.STARTING), task)
                    # A callback, since a task that is cancelled before its first step has none.
                    task.add_done_callback(functools.partial(self._forget_start, worker_id))
                await self._wakeup.wait(until=self._wake_at())
            self.ended = True

    async def _run_worker(self, worker_id: str) -> None:
        """One worker, from the check of its files to its end."""
        context, pooled = self._context, None
        try:
            await self._verify_files()
            async with started_worker(
                self.spec,
                worker_id,
                log=context.log,
                settings=context.settings,
                plugin_requests=context.plugin_requests,
            ) as worker:
                worker.forget_greeting()
                worker.life.kept_until = self._clock() + self._changes.left_s(self._clock())
                pooled = PooledWorker(worker, self._clock())
                self._workers.append(pooled)
                self._forget_start(worker_id)
                context.records.started(worker)
                await worker.serve()
                self._wakeup.notify()
        except WorkerUnavailableError as error:
            self._forget_start(worker_id)
            context.records.failed(error.error)
            self._fail(error.error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            self._forget_start(worker_id)
            self._fail(faults.internal_error(self.spec.plugin, error))
        finally:
            if pooled is not None:
                self._workers.remove(pooled)
                context.records.ended(pooled.worker, pooled.worker.table.served)
                self._judge(pooled.worker)
                self._wakeup.notify()

    def _forget_start(self, worker_id: str, _task: asyncio.Task[None] | None = None) -> None:
        """The worker is ready, or won't be. Another one may be starting by now."""
        if self._start is not None and self._start.info.worker_id == worker_id:
            self._start = None
            self._wakeup.notify()

    async def _verify_files(self) -> None:
        """Ask whether a worker may be started.

        Raises:
            WorkerUnavailableError: it may not.
        """
        verify = self._context.verify
        reason = await verify(self.spec) if verify is not None else None
        if reason is not None:
            raise WorkerUnavailableError(faults.unverified_error(self.spec.plugin, reason))

    def try_acquire(self) -> Lease | None:
        """A lease of the least loaded worker that is ready, or None."""
        best: PooledWorker | None = None
        for pooled in self._workers:
            worker = pooled.worker
            if (
                pooled.taken < worker.max_concurrent_calls
                and worker.state is WorkerState.READY
                and (best is None or pooled.taken < best.taken)
            ):
                best = pooled
        if best is None:
            return None
        best.taken += 1
        return Lease(self, best)

    async def acquire(self) -> Lease:
        """See `interface.Pool`."""
        lease = self.try_acquire()
        if lease is not None:
            return lease
        left_s = self._backoff.left_s(self._clock())
        if not self._workers and self._start is None and self._backoff.cause is not None and left_s > 0:
            raise WorkerUnavailableError(faults.backoff_error(self._backoff.cause, left_s))
        self._wakeup.notify()
        return await self._waiters.wait()

    def give_back(self, pooled: PooledWorker) -> None:
        """A lease was released: the next in line gets one."""
        pooled.taken -= 1
        worker = pooled.worker
        if worker.state is WorkerState.DEAD:
            return
        if self._backoff.failures and worker.table.served:
            self._backoff.reset()
        if self._waiters:
            self._waiters.serve(self.try_acquire)
        if not pooled.taken:
            pooled.idle_since = self._clock()
            if self._retired:
                self._wakeup.notify()

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its workers, the one that is being started and the one that waits to be started again among them."""
        found = [pooled.worker.info for pooled in self._workers]
        if self._start is not None:
            found.append(self._start.info)
        elif not found and self._backoff.left_s(self._clock()) > 0:
            found.append(self._info_without_process("", WorkerState.BACKOFF))
        return tuple(found)

    def unanswered(self) -> list[WorkerAttempt]:
        """See `interface.Pool`."""
        return [attempt for pooled in self._workers for attempt in pooled.worker.table.unanswered]

    def retire(self) -> None:
        """See `interface.Pool`."""
        self._retired = True
        self._wakeup.notify()

    def refuse_waiting(self) -> None:
        """See `interface.Pool`."""
        self._retired = True
        fail_waiting(self._waiters, faults.shutdown_error(self.spec.plugin))
        self._wakeup.notify()

    def finish(self) -> None:
        """See `interface.Pool`."""
        self.refuse_waiting()
        for pooled in self._workers:
            pooled.worker.finish()
        self._cancel_start()

    def kill(self) -> None:
        """See `interface.Pool`."""
        self.refuse_waiting()
        for pooled in self._workers:
            pooled.worker.kill()
        self._cancel_start()

    def _cancel_start(self) -> None:
        if self._start is not None:
            self._start.task.cancel()

    @property
    def _is_empty(self) -> bool:
        """Whether it holds no process, nobody waits, and there is no failure to remember."""
        if self._workers or self._waiters or self._start is not None:
            return False
        return self._retired or self._remembered_s <= 0

    @property
    def _remembered_s(self) -> float:
        """How long failures, and changes of tools, count for the pace of the next ones."""
        now = self._clock()
        return max(self._backoff.remembered_s(now), self._changes.remembered_s(now))

    @property
    def _start_is_due(self) -> bool:
        return (
            self._start is None
            and len(self._waiters) > 0
            and len(self._workers) < self.spec.max_workers
            and self._backoff.left_s(self._clock()) <= 0
        )

    def _fail_waiting_if_hopeless(self) -> None:
        """Tell those who wait that the last start failed, where no worker is left that could serve them."""
        left_s, cause = self._backoff.left_s(self._clock()), self._backoff.cause
        if not self._workers and self._start is None and cause is not None and left_s > 0:
            fail_waiting(self._waiters, faults.backoff_error(cause, left_s))

    def _end_idle(self) -> None:
        """Ask those to exit that nobody has used for `idle_s`, or will use in a retired pool."""
        if self._retired and self._waiters:
            return
        idle_since = math.inf if self._retired else self._clock() - self._context.settings.idle_s
        for pooled in self._workers:
            if not pooled.taken and pooled.idle_since <= idle_since:
                pooled.worker.finish()

    def _wake_at(self) -> float:
        """When there is something to do, whoever comes or goes: the end of the backoff, or of somebody's idleness."""
        now = self._clock()
        due = math.inf
        if self._waiters and self._backoff.left_s(now) > 0:
            due = now + self._backoff.left_s(now)
        elif not self._workers and self._remembered_s > 0:
            due = now + self._remembered_s
        ready = [pooled for pooled in self._workers if pooled.worker.state is WorkerState.READY]
        if ready:
            oldest = min(now if pooled.taken else pooled.idle_since for pooled in ready)
            due = min(due, oldest + self._context.settings.idle_s)
        return due

    def _judge(self, worker: ProcessWorker) -> None:
        """A worker is dead: one that did no good is not started again at once."""
        life = worker.life
        lived_long = self._clock() - worker.born_at >= self._context.settings.healthy_s
        if lived_long:
            self._changes.reset()
        if life.tools_changed:
            self._changes.fail(self._clock())
        if worker.table.served or lived_long:
            self._backoff.reset()
        elif life.failed and life.cause is not None and life.cause.code is not Code.TOOL_RESOURCE_EXHAUSTED:
            # A limit that its first call reached says nothing against starting it for the next caller.
            untouched = worker.table.untouched
            self._fail(life.cause, life.cause if untouched else faults.earlier_call_error(life.cause))

    def _fail(self, error: CallError, told: CallError | None = None) -> None:
        """A worker ended before it served anything. `told` is what callers are told who wait for another one."""
        now = self._clock()
        told = told or error
        self._backoff.fail(now, told)
        self._context.log.problem(error.message)
        if not self._workers:
            fail_waiting(self._waiters, faults.backoff_error(told, self._backoff.left_s(now)))
        self._wakeup.notify()

    def _info_without_process(self, worker_id: str, state: WorkerState) -> WorkerInfo:
        return WorkerInfo(
            worker_id=worker_id,
            spec=self.spec,
            state=state,
            calls_in_flight=0,
            calls_served=0,
            started_at=time.time(),
            process_id=0,
        )
