"""A pool of warm workers, each of which serves many calls."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

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


class Place:
    """A worker with the number of its places that are taken."""

    __slots__ = ("idle_since", "taken", "worker")

    def __init__(self, worker: ProcessWorker, now: float) -> None:
        """A worker that nobody uses yet."""
        self.worker = worker
        self.taken = 0
        self.idle_since = now


class Lease:
    """One place; see `WorkerLease`."""

    __slots__ = ("_place", "_pool", "worker")

    def __init__(self, pool: SharedPool, place: Place) -> None:
        """Counted in `place.taken` already."""
        self._pool: SharedPool | None = pool
        self._place = place
        self.worker = place.worker

    def release(self) -> None:
        """Give the place back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self._place)


class SharedPool:
    """Workers with one spec (`interface.Pool`).

    The order for somebody who wants a place: a free place on the least loaded worker; else a wait in line, while one
    start at a time adds a worker as long as the line is not empty and there are fewer than `spec.max_workers`.
    """

    def __init__(self, context: PoolContext) -> None:
        """Without workers yet."""
        self._context = context
        self.spec: WorkerSpec = context.spec
        self.ended = False
        self._clock = asyncio.get_running_loop().time
        self._places: list[Place] = []
        self._waiters: WaiterQueue[Lease] = WaiterQueue()
        self._wakeup = Wakeup()
        self._start: asyncio.Task[None] | None = None
        """The life of a worker that is not ready yet."""
        self._starting: WorkerInfo | None = None
        """The same, as the operator sees it."""
        settings = context.settings
        self._backoff = Backoff(first_s=settings.backoff_first_s, last_s=settings.backoff_last_s)
        self._retired = False

    async def run(self) -> None:
        """See `interface.Pool`."""
        async with asyncio.TaskGroup() as lives:
            while not self._is_empty:
                self._waiters.serve(self.try_acquire)
                self._end_idle()
                self._fail_waiting_if_hopeless()
                if self._start_is_due:
                    worker_id = self._context.new_id()
                    self._starting = self._info_without_process(worker_id, WorkerState.STARTING)
                    self._start = lives.create_task(self._run_worker(worker_id), name=worker_id)
                    # A callback, since a task that is cancelled before its first step has none.
                    self._start.add_done_callback(self._forget_start)
                await self._wakeup.wait(until=self._wake_at())
            self.ended = True

    async def _run_worker(self, worker_id: str) -> None:
        """One worker, from the check of its files to its end."""
        context, place = self._context, None
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
                place = Place(worker, self._clock())
                self._start = self._starting = None
                self._places.append(place)
                context.lives.started(worker)
                self._wakeup.notify()
                await worker.serve()
                self._wakeup.notify()
        except WorkerUnavailableError as error:
            self._start = self._starting = None
            context.lives.failed(error.error)
            self._fail(error.error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            self._start = self._starting = None
            self._fail(faults.internal_error(self.spec.plugin, error))
        finally:
            if place is not None:
                self._places.remove(place)
                context.lives.ended(place.worker, place.worker.table.served)
                self._judge(place.worker)
                self._wakeup.notify()

    def _forget_start(self, start: asyncio.Task[None]) -> None:
        if self._start is start:
            self._start = self._starting = None
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
        """A place on the least loaded worker that is ready, or None."""
        best: Place | None = None
        for place in self._places:
            worker = place.worker
            if (
                place.taken < worker.max_concurrent_calls
                and worker.state is WorkerState.READY
                and (best is None or place.taken < best.taken)
            ):
                best = place
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
        if not self._places and self._starting is None and self._backoff.cause is not None and left_s > 0:
            raise WorkerUnavailableError(faults.backoff_error(self._backoff.cause, left_s))
        self._wakeup.notify()
        return await self._waiters.wait()

    def give_back(self, place: Place) -> None:
        """A lease was released: the next in line gets the place."""
        place.taken -= 1
        worker = place.worker
        if worker.state is WorkerState.DEAD:
            return
        if self._backoff.failures and worker.table.served:
            self._backoff.reset()
        if self._waiters:
            self._waiters.serve(self.try_acquire)
        if not place.taken:
            place.idle_since = self._clock()
            if self._retired:
                self._wakeup.notify()

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its workers, the one that is being started and the one that waits to be started again among them."""
        found = [place.worker.info for place in self._places]
        if self._starting is not None:
            found.append(self._starting)
        elif not found and self._backoff.left_s(self._clock()) > 0:
            found.append(self._info_without_process("", WorkerState.BACKOFF))
        return tuple(found)

    def unanswered(self) -> list[WorkerAttempt]:
        """See `interface.Pool`."""
        return [attempt for place in self._places for attempt in place.worker.table.unanswered]

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
        for place in self._places:
            place.worker.finish()
        self._cancel_start()

    def kill(self) -> None:
        """See `interface.Pool`."""
        self.refuse_waiting()
        for place in self._places:
            place.worker.kill()
        self._cancel_start()

    def _cancel_start(self) -> None:
        if self._start is not None:
            self._start.cancel()

    @property
    def _is_empty(self) -> bool:
        """Whether it holds no process, nobody waits, and there is no failure to remember."""
        if self._places or self._waiters or self._starting is not None:
            return False
        return self._retired or self._backoff.remembered_s(self._clock()) <= 0

    @property
    def _start_is_due(self) -> bool:
        return (
            self._starting is None
            and len(self._waiters) > 0
            and len(self._places) < self.spec.max_workers
            and self._backoff.left_s(self._clock()) <= 0
        )

    def _fail_waiting_if_hopeless(self) -> None:
        """Tell those who wait that the last start failed, where no worker is left that could serve them."""
        left_s, cause = self._backoff.left_s(self._clock()), self._backoff.cause
        if not self._places and self._starting is None and cause is not None and left_s > 0:
            fail_waiting(self._waiters, faults.backoff_error(cause, left_s))

    def _end_idle(self) -> None:
        """Ask those to exit that nobody has used for `idle_s`, or will use in a retired pool."""
        if self._retired and self._waiters:
            return
        idle_since = math.inf if self._retired else self._clock() - self._context.settings.idle_s
        for place in self._places:
            if not place.taken and place.idle_since <= idle_since:
                place.worker.finish()

    def _wake_at(self) -> float:
        """When there is something to do, whoever comes or goes: the end of the backoff, or of somebody's idleness."""
        now = self._clock()
        due = math.inf
        if self._waiters and self._backoff.left_s(now) > 0:
            due = now + self._backoff.left_s(now)
        elif not self._places and self._backoff.remembered_s(now) > 0:
            due = now + self._backoff.remembered_s(now)
        ready = [place for place in self._places if place.worker.state is WorkerState.READY]
        if ready:
            oldest = min(now if place.taken else place.idle_since for place in ready)
            due = min(due, oldest + self._context.settings.idle_s)
        return due

    def _judge(self, worker: ProcessWorker) -> None:
        """A worker is dead: one that did no good is not started again at once."""
        life = worker.life
        if worker.table.served or self._clock() - worker.born_at >= self._context.settings.healthy_s:
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
        if not self._places:
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
