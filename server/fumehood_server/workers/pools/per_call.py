"""A pool of workers that serve one call each: some wait ready, one is taken by a call, another is made."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from fumehood_sandbox import PythonModule

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.workers import faults
from fumehood_server.workers.pools.forked import ForkedWorkers
from fumehood_server.workers.pools.interface import fail_waiting
from fumehood_server.workers.pools.launched import LaunchedWorkers
from fumehood_server.workers.pools.prewarmed import CallLease, PrewarmedWorkers

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.tool import Reason
    from fumehood_server.model.worker import WorkerInfo
    from fumehood_server.workers.pools.interface import PoolContext
    from fumehood_server.workers.process.attempt import WorkerAttempt


class WorkerSource(Protocol):
    """Makes workers to order. Each order adds one to the pool's workers, fails, or is lost and made again."""

    @property
    def prewarmed(self) -> int:
        """How many workers wait ready for calls to come."""

    @property
    def most(self) -> int:
        """Most processes at a time."""

    @property
    def pending(self) -> int:
        """How many workers were ordered and are not there."""

    @property
    def reads_files(self) -> bool:
        """Whether an order would read the program's files, which must be verified first."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no process and starts none."""

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its own processes, as the operator sees them."""

    def order(self) -> None:
        """Have one more worker made."""

    def stop(self) -> None:
        """Make no more, and end its own processes once no worker needs them. Idempotent."""

    def kill(self) -> None:
        """End its own processes at once. Idempotent."""


class PerCallPool:
    """A pool of workers that no two calls share (`interface.Pool`).

    A Python plugin is imported once, by a zygote, and forked; any other program is launched anew.
    """

    def __init__(self, context: PoolContext) -> None:
        """Without workers yet."""
        self._context = context
        self.spec: WorkerSpec = context.spec
        self.ended = False
        self._clock = asyncio.get_running_loop().time
        self._workers = PrewarmedWorkers(context)
        self._source: WorkerSource | None = None
        """None before `run` and after it."""
        self._warm = False
        """Whether prewarmed workers are kept: from the first call until nobody calls for long."""
        self._retired = False
        self._killed = False
        self._check: asyncio.Future[Reason | None] | None = None
        """The verification of the program's files that is under way."""

    async def run(self) -> None:
        """See `interface.Pool`."""
        program = self.spec.program
        forks = isinstance(program, PythonModule) and program.forks > 0
        async with asyncio.TaskGroup() as tasks:
            source = (ForkedWorkers if forks else LaunchedWorkers)(self._context, self._workers, tasks)
            self._source = source
            if self._killed:
                source.kill()
            while not self._is_empty(source):
                self._end_unneeded(source)
                await self._refill(source)
                self._fail_waiting_if_hopeless(source)
                await self._workers.wakeup.wait(until=self._wake_at(source))
            self.ended = True
            self._source = None

    async def _refill(self, source: WorkerSource) -> None:
        """Order what is wanted: a worker for everybody who waits, and the prewarmed ones."""
        workers = self._workers
        wanted = self._wanted(source)
        if len(workers.unused) + source.pending >= wanted or not self._may_order():
            return
        if source.reads_files:
            error = await self._files_error()
            if error is not None:
                workers.fail(error)
                # Who has a call serves no other one, and no wait makes the files what they were.
                fail_waiting(workers.waiters, faults.backoff_error(error, workers.backoff.left_s(self._clock())))
                return
        while (
            len(workers.unused) + source.pending < self._wanted(source)
            and len(workers.live) + source.pending < source.most
        ):
            source.order()

    def _wanted(self, source: WorkerSource) -> int:
        """How many unused workers there should be."""
        return len(self._workers.waiters) + (source.prewarmed if self._keeps_prewarmed else 0)

    @property
    def _keeps_prewarmed(self) -> bool:
        """Whether workers wait ready. Not of a plugin that failed to start: its next start is for who calls next."""
        return self._warm and not self._retired and not self._workers.backoff.failures

    def _may_order(self) -> bool:
        """Not while a failed start is left alone; and for prewarmed ones, not while other workers are ending."""
        workers, now = self._workers, self._clock()
        return workers.backoff.left_s(now) <= 0 and (len(workers.waiters) > 0 or now >= workers.refill_at)

    async def _files_error(self) -> CallError | None:
        """Why no worker may be made from what lies there."""
        verify, plugin = self._context.verify, self.spec.plugin
        if verify is None:
            return None
        self._check = asyncio.ensure_future(verify(self.spec))
        try:
            reason = await self._check
        except asyncio.CancelledError:
            if not self._check.cancelled() or not self._retired:
                raise
            return faults.shutdown_error(plugin)  # by `finish` or `kill`
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            return faults.internal_error(plugin, error)
        finally:
            self._check = None
        return None if reason is None else faults.unverified_error(plugin, reason)

    def _fail_waiting_if_hopeless(self, source: WorkerSource) -> None:
        """Tell those who wait that the last start failed, where no worker is left that could end and be replaced."""
        backoff = self._workers.backoff
        left_s = backoff.left_s(self._clock())
        if not self._workers.live and not source.pending and backoff.cause is not None and left_s > 0:
            fail_waiting(self._workers.waiters, faults.backoff_error(backoff.cause, left_s))

    def _end_unneeded(self, source: WorkerSource) -> None:
        """End what nobody needs: all of an idle pool, and of a retired one what has no call."""
        workers = self._workers
        if self._retired and not workers.waiters:
            workers.kill_unused()
            if not workers.live:
                source.stop()
        elif self._warm and self._idle_at(source) <= self._clock():
            self._warm = False
            workers.kill_unused()
            source.stop()

    def _idle_at(self, source: WorkerSource) -> float:
        """When nobody will have called for long. Infinite while somebody does."""
        workers = self._workers
        if workers.waiters or source.pending or len(workers.live) > len(workers.unused):
            return math.inf
        return workers.used_at + self._context.settings.idle_s

    def _wake_at(self, source: WorkerSource) -> float:
        """When there is something to do, whoever comes or goes."""
        workers, now, due = self._workers, self._clock(), math.inf
        if workers.waiters and workers.backoff.left_s(now) > 0:
            due = now + workers.backoff.left_s(now)
        elif not workers.live and workers.backoff.remembered_s(now) > 0:
            due = now + workers.backoff.remembered_s(now)
        if self._keeps_prewarmed and workers.refill_at > now:
            due = min(due, workers.refill_at)
        if self._warm and not self._retired:
            due = min(due, self._idle_at(source))
        return due

    def _is_empty(self, source: WorkerSource) -> bool:
        """Whether it holds no process, nobody waits, and there is no failure to remember."""
        workers = self._workers
        if workers.live or workers.waiters or not source.is_idle or self._keeps_prewarmed:
            return False
        return self._retired or workers.backoff.remembered_s(self._clock()) <= 0

    def try_acquire(self) -> CallLease | None:
        """See `interface.Pool`."""
        return self._workers.take()

    async def acquire(self) -> CallLease:
        """See `interface.Pool`."""
        lease = self.try_acquire()
        if lease is not None:
            return lease
        workers, backoff = self._workers, self._workers.backoff
        left_s = backoff.left_s(self._clock())
        pending = self._source.pending if self._source is not None else 0
        if not workers.live and not pending and backoff.cause is not None and left_s > 0:
            raise WorkerUnavailableError(faults.backoff_error(backoff.cause, left_s))
        self._warm = not self._retired
        workers.used_at = self._clock()
        workers.wakeup.notify()
        return await workers.waiters.wait()

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its workers, the zygotes among them."""
        own = self._source.infos() if self._source is not None else ()
        return (*own, *(worker.info for worker in self._workers.live))

    def unanswered(self) -> list[WorkerAttempt]:
        """See `interface.Pool`."""
        return [attempt for worker in self._workers.live for attempt in worker.table.unanswered]

    def retire(self) -> None:
        """See `interface.Pool`."""
        self._retired = True
        self._workers.wakeup.notify()

    def refuse_waiting(self) -> None:
        """See `interface.Pool`."""
        self._retired = True
        fail_waiting(self._workers.waiters, faults.shutdown_error(self.spec.plugin))
        self._workers.wakeup.notify()

    def finish(self) -> None:
        """See `interface.Pool`."""
        self.refuse_waiting()
        self._workers.kill_unused()
        for worker in self._workers.live:
            worker.finish()
        if self._check is not None:
            self._check.cancel()
        if self._source is not None:
            self._source.stop()

    def kill(self) -> None:
        """See `interface.Pool`."""
        self.refuse_waiting()
        self._killed = True
        for worker in self._workers.live:
            worker.kill()
        if self._check is not None:
            self._check.cancel()
        if self._source is not None:
            self._source.kill()
