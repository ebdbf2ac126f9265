"""Workers that serve one call each: those that wait ready for a call, those that have one, and who waits for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from fumehood_server.model.waiters import WaiterQueue
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.pools.backoff import Backoff
from fumehood_server.workers.pools.interface import PoolContext, Wakeup, fail_waiting

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.workers.process.worker import ProcessWorker

REFILL_AFTER_S = 0.05
"""From a worker's death to its replacement, where nobody waits for one: as long as twenty trees that die at a deadline
need. A zygote that is replaced meanwhile takes half a processor."""


class CallLease:
    """A worker for one call; see `WorkerLease`."""

    __slots__ = ("_workers", "worker")

    def __init__(self, workers: PrewarmedWorkers, worker: ProcessWorker) -> None:
        """The worker was taken already."""
        self._workers: PrewarmedWorkers | None = workers
        self.worker = worker

    def release(self) -> None:
        """Give it back, for a next call if it had none."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.give_back(self.worker)


class PrewarmedWorkers:
    """What the pool and that which makes its workers know of them. `wakeup` tells the pool of what has changed."""

    def __init__(self, context: PoolContext) -> None:
        """None yet."""
        self._context = context
        self._clock = asyncio.get_running_loop().time
        settings = context.settings
        self.unused: deque[ProcessWorker] = deque()
        """Those that nobody has taken."""
        self.live: set[ProcessWorker] = set()
        """All that are not dead."""
        self.waiters: WaiterQueue[CallLease] = WaiterQueue()
        self.wakeup = Wakeup()
        self.backoff = Backoff(first_s=settings.backoff_first_s, last_s=settings.backoff_last_s)
        self.used_at = self._clock()
        """When the last call was over."""
        self.refill_at = 0.0
        """When those are to be replaced that have died, if nobody waits."""

    def take(self) -> CallLease | None:
        """A worker that nothing ran in, or None when there is none right now."""
        while self.unused:
            worker = self.unused.popleft()
            if worker.state is WorkerState.READY:
                self.refill_at = 0.0
                self.wakeup.notify()
                return CallLease(self, worker)
        return None

    def give_back(self, worker: ProcessWorker) -> None:
        """A lease was released. A worker that had its call ends by itself."""
        self.used_at = self._clock()
        if worker.table.untouched and worker.state is WorkerState.READY:
            self.unused.appendleft(worker)
            self.waiters.serve(self.take)
            self.wakeup.notify()

    def add(self, worker: ProcessWorker) -> None:
        """A worker is ready."""
        self.live.add(worker)
        self.unused.append(worker)
        self.waiters.serve(self.take)
        self.wakeup.notify()

    def remove(self, worker: ProcessWorker) -> None:
        """A worker is dead."""
        self.live.discard(worker)
        if worker in self.unused:
            self.unused.remove(worker)
        if worker.table.served:
            self.backoff.reset()
        self.refill_at = self._clock() + REFILL_AFTER_S
        self.wakeup.notify()

    def fail(self, error: CallError) -> None:
        """No worker can be had right now."""
        now = self._clock()
        self.backoff.fail(now, error)
        self._context.log.problem(error.message)
        if not self.live:
            fail_waiting(self.waiters, faults.backoff_error(error, self.backoff.left_s(now)))
        self.wakeup.notify()

    def kill_unused(self) -> None:
        """End those that have no call."""
        while self.unused:
            self.unused.popleft().kill()
