"""The workers of one spec: when one is started, which one is taken, when one is ended."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fumehood.v1 import plugin_pb2

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import WorkerInfo, WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.pools.backoff import Backoff
from fumehood_server.workers.process import lifecycle
from fumehood_server.workers.process.lifecycle import WorkerEvent
from fumehood_server.workers.process.start import start

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.tool import Reason
    from fumehood_server.model.worker import CancelReason, InvocationResult
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.worker import ProcessWorker
    from fumehood_server.workers.settings import WorkerSettings


Verify = Callable[["WorkerSpec"], Awaitable["Reason | None"]]
"""Why no worker of a spec may be started right now, such as changed files. None when one may."""


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

    def __init__(self, pool: Pool, place: Place) -> None:
        """Counted in `place.taken` already."""
        self._pool: Pool | None = pool
        self._place = place
        self.worker = place.worker

    def release(self) -> None:
        """Give the place back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self._place)


class Pool:
    """Workers with one spec. Made when one is first wanted, forgotten when `is_empty`.

    The order for somebody who wants a place: a free place on the least loaded worker; else a wait in line, while one
    start at a time adds a worker as long as the line is not empty and there are fewer than `spec.max_workers`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        log: PluginLog,
        settings: WorkerSettings,
        ids: itertools.count[int],
        on_empty: Callable[[Pool], None],
        verify: Verify | None = None,
        plugin_requests: PluginRequestHandler | None = None,
    ) -> None:
        """`ids` numbers workers over all pools. `on_empty` is called when nothing is left that is worth keeping."""
        self._verify = verify
        self._plugin_requests = plugin_requests
        self.spec = spec
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._settings = settings
        self._ids = ids
        self._on_empty = on_empty
        self._places: list[Place] = []
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        self._start: asyncio.Task[None] | None = None
        self._start_id = ""
        self._start_time = 0.0
        self._backoff = Backoff(first_s=settings.backoff_first_s, last_s=settings.backoff_last_s)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retired = False

    @property
    def is_empty(self) -> bool:
        """Whether it holds no process, nobody waits, and there is no failure to remember."""
        idle = not self._places and not self._waiting and self._start is None
        return idle and (self._retired or self._backoff.left_s(self._loop.time()) <= 0)

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its workers, the one that is being started and the one that waits to be started again among them."""
        found = [place.worker.info for place in self._places]
        if self._start is not None and all(info.worker_id != self._start_id for info in found):
            found.append(self._without_process(WorkerState.STARTING))
        elif not found and self._backoff.left_s(self._loop.time()) > 0:
            found.append(self._without_process(lifecycle.advance(WorkerState.DEAD, WorkerEvent.START_FAILED)))
        return tuple(found)

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
        """A place, after a wait; see `WorkerPools.acquire`. Cancel it at will."""
        lease = self.try_acquire()
        if lease is not None:
            return lease
        if not self._places and self._start is None:
            self._refuse_during_backoff()
        waiting: asyncio.Future[Lease] = self._loop.create_future()
        self._waiting.append(waiting)
        self._grow()
        try:
            return await waiting
        except asyncio.CancelledError:
            # The place may have been given in the same turn of the loop in which the caller gave up.
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                waiting.result().release()
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def give_back(self, place: Place) -> None:
        """A lease was released: the next in line gets the place."""
        place.taken -= 1
        worker = place.worker
        if worker.state is WorkerState.DEAD:
            return
        if self._backoff.failures and worker.calls_served:
            self._backoff.reset()
        if self._waiting:
            self._serve_waiting()
        if not place.taken:
            place.idle_since = self._loop.time()
            if self._retired and not self._waiting:
                worker.finish()
            elif self._idle_timer is None:
                self._idle_timer = self._loop.call_later(self._settings.idle_s, self._end_idle)

    def retire(self) -> None:
        """End each worker once nobody uses it. Who waits is still served."""
        self._retired = True
        if not self._waiting:
            for place in tuple(self._places):
                if not place.taken:
                    place.worker.finish()
        self._tell_if_empty()

    def refuse_waiting(self) -> None:
        """The sidecar shuts down: nobody gets a place any more."""
        self._retired = True
        self._fail_waiting(faults.shutdown_error(self.spec.plugin))

    def cancel_calls(self, reason: CancelReason) -> None:
        """Cancel all calls under way."""
        for place in self._places:
            place.worker.table.cancel_all(reason)

    def calls(self) -> list[asyncio.Future[InvocationResult]]:
        """What the calls under way resolve."""
        return [done for place in self._places for done in place.worker.table.unanswered]

    async def close(self) -> None:
        """End everything. Bounded: each worker climbs its rungs at the same time as the others."""
        self.refuse_waiting()
        for timer in (self._idle_timer, self._retry):
            if timer is not None:
                timer.cancel()
        if self._start is not None:
            self._start.cancel()
            await asyncio.wait((self._start,))
            self._start = None
        workers = [place.worker for place in self._places]
        for worker in workers:
            worker.finish()
        if workers:
            await asyncio.wait([worker.dead for worker in workers])

    def kill(self) -> None:
        """End every process at once, for an owner who can't wait."""
        if self._start is not None:
            self._start.cancel()
        for place in tuple(self._places):
            place.worker.kill()

    def _grow(self) -> None:
        if self._start is None and self._waiting and len(self._places) < self.spec.max_workers:
            left_s = self._backoff.left_s(self._loop.time())
            if self._backoff.cause is not None and left_s > 0:
                if not self._places:
                    self._fail_waiting(faults.backoff_error(self._backoff.cause, left_s))
                elif self._retry is None:  # the calls of those that there are may last
                    self._retry = self._loop.call_later(left_s, self._try_again)
                return
            self._start_id = f"{self.spec.plugin}-{next(self._ids)}"
            self._start_time = time.time()
            self._start = self._loop.create_task(self._add_worker(), name=f"start {self._start_id}")

    def _try_again(self) -> None:
        self._retry = None
        self._grow()

    async def _check(self) -> None:
        """Ask whether a worker may be started.

        Raises:
            WorkerUnavailableError: it may not.
        """
        reason = await self._verify(self.spec) if self._verify is not None else None
        if reason is not None:
            raise WorkerUnavailableError(faults.unverified_error(self.spec.plugin, reason))

    async def _add_worker(self) -> None:
        try:
            await self._check()
            worker = await start(
                self.spec,
                self._start_id,
                log=self._log,
                settings=self._settings,
                on_change=self._changed,
                plugin_requests=self._plugin_requests,
            )
        except WorkerUnavailableError as error:
            self._start = None
            self._failed(error.error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            self._start = None
            self._failed(faults.internal_error(self.spec.plugin, error))
        else:
            self._start = None
            # Definitions are read by `describe` alone; a hostile Ready can be as large as a frame.
            worker.greeting = plugin_pb2.Ready()
            place = Place(worker, self._loop.time())
            self._places.append(place)
            self._serve_waiting()
            if self._retired and not place.taken:
                worker.finish()
            self._arm_idle_timer()
        self._tell_if_empty()

    def _changed(self, worker: ProcessWorker) -> None:
        """A worker takes no more calls, or is dead."""
        place = next((place for place in self._places if place.worker is worker), None)
        if place is None:
            return
        if worker.state is WorkerState.DEAD:
            self._places.remove(place)
            lived_s = self._loop.time() - worker.born
            if worker.calls_served or lived_s >= self._settings.healthy_s:
                self._backoff.reset()
            elif worker.failed and worker.cause is not None and worker.cause.code is not Code.TOOL_RESOURCE_EXHAUSTED:
                # A limit that its first call reached says nothing against starting it for the next caller.
                self._failed(worker.cause)
        self._grow()
        self._tell_if_empty()

    def _failed(self, error: CallError) -> None:
        """A worker ended before it served anything."""
        now = self._loop.time()
        self._backoff.fail(now, error)
        self._log.problem(error.message)
        if not self._places:
            self._fail_waiting(faults.backoff_error(error, self._backoff.left_s(now)))
        self._grow()

    def _refuse_during_backoff(self) -> None:
        left_s = self._backoff.left_s(self._loop.time())
        if self._backoff.cause is not None and left_s > 0:
            raise WorkerUnavailableError(faults.backoff_error(self._backoff.cause, left_s))

    def _serve_waiting(self) -> None:
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            lease = self.try_acquire()
            if lease is None:
                self._grow()
                return
            self._waiting.popleft().set_result(lease)

    def _fail_waiting(self, error: CallError) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(WorkerUnavailableError(error))

    def _arm_idle_timer(self) -> None:
        """One timer for the whole pool, for the worker that would be idle for too long first."""
        idle = [
            place.idle_since
            for place in self._places
            if not place.taken and place.worker.state is WorkerState.READY  # who is ending needs no timer
        ]
        if idle and self._idle_timer is None:
            self._idle_timer = self._loop.call_at(min(idle) + self._settings.idle_s, self._end_idle)

    def _end_idle(self) -> None:
        self._idle_timer = None
        limit = self._loop.time() - self._settings.idle_s
        for place in tuple(self._places):
            if not place.taken and place.idle_since <= limit:
                place.worker.finish()
        self._arm_idle_timer()

    def _tell_if_empty(self) -> None:
        if self.is_empty:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
            self._on_empty(self)

    def _without_process(self, state: WorkerState) -> WorkerInfo:
        return WorkerInfo(
            worker_id=self._start_id,
            spec=self.spec,
            state=state,
            calls_in_flight=0,
            calls_served=0,
            started_at=self._start_time,
            process_id=0,
        )
