"""Launches a sandbox for each call, one of them ahead: for programs that can't be forked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.workers import faults
from fumehood_server.workers.process.start import started_worker
from fumehood_server.workers.settings import PREWARMED_LAUNCHES

if TYPE_CHECKING:
    from fumehood_server.model.worker import WorkerInfo
    from fumehood_server.workers.pools.interface import PoolContext
    from fumehood_server.workers.pools.prewarmed import PrewarmedWorkers


class LaunchedWorkers:
    """Launches a worker for each order (`per_call.WorkerSource`)."""

    prewarmed = PREWARMED_LAUNCHES
    reads_files = True

    def __init__(self, context: PoolContext, workers: PrewarmedWorkers, tasks: asyncio.TaskGroup) -> None:
        """The life of each worker is a task of `tasks`, and the worker one of `workers` while it is ready."""
        self._context = context
        self._workers = workers
        self._tasks = tasks
        self._starts: set[asyncio.Task[None]] = set()
        self.most = context.spec.max_workers

    @property
    def pending(self) -> int:
        """See `WorkerSource`."""
        return len(self._starts)

    @property
    def is_idle(self) -> bool:
        """See `WorkerSource`."""
        return not self._starts

    def infos(self) -> tuple[WorkerInfo, ...]:
        """See `WorkerSource`: nothing but the workers is a process here."""
        return ()

    def order(self) -> None:
        """See `WorkerSource`."""
        worker_id = self._context.new_id()
        start = self._tasks.create_task(self._run_worker(worker_id), name=worker_id)
        self._starts.add(start)
        # A callback, since a task that is cancelled before its first step has none.
        start.add_done_callback(self._forget_start)

    def stop(self) -> None:
        """See `WorkerSource`."""
        for start in self._starts:
            start.cancel()

    def kill(self) -> None:
        """See `WorkerSource`."""
        self.stop()

    async def _run_worker(self, worker_id: str) -> None:
        """One worker, from its launch to its end."""
        context, workers, life = self._context, self._workers, asyncio.current_task()
        worker = None
        try:
            async with started_worker(
                context.spec,
                worker_id,
                log=context.log,
                settings=context.settings,
                plugin_requests=context.plugin_requests,
                one_call=True,
            ) as worker:
                worker.forget_greeting()
                self._starts -= {life}
                workers.add(worker)
                await worker.serve()
        except WorkerUnavailableError as error:
            self._starts -= {life}
            workers.fail(error.error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            self._starts -= {life}
            workers.fail(faults.internal_error(context.spec.plugin, error))
        finally:
            if worker is not None:
                workers.remove(worker)

    def _forget_start(self, start: asyncio.Task[None]) -> None:
        self._starts.discard(start)
        self._workers.wakeup.notify()
