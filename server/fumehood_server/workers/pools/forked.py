"""Forks a worker for each call from a zygote, which is replaced whenever a call may have left something in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood_sandbox import LaunchError, PythonModule

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.launches import end_off_loop
from fumehood_server.model.plugin import PREWARMED_FORKS
from fumehood_server.workers import faults
from fumehood_server.workers.pools.zygote import Zygote, refusal, started_zygote
from fumehood_server.workers.process.start import make_worker

if TYPE_CHECKING:
    from fumehood_sandbox import ForkedProcess

    from fumehood_server.model.call import CallError
    from fumehood_server.model.worker import WorkerInfo
    from fumehood_server.workers.pools.interface import PoolContext
    from fumehood_server.workers.pools.prewarmed import PrewarmedWorkers
    from fumehood_server.workers.process.worker import ProcessWorker


class ForkedWorkers:
    """Has children forked to order (`per_call.WorkerSource`), by one zygote at a time.

    The children of an earlier zygote finish their calls, and it lives as long as they do.
    """

    prewarmed = PREWARMED_FORKS

    def __init__(self, context: PoolContext, workers: PrewarmedWorkers, tasks: asyncio.TaskGroup) -> None:
        """The life of each zygote is a task of `tasks`; each child is one of `workers` while it is ready."""
        self._context = context
        self._workers = workers
        self._tasks = tasks
        program = context.spec.program
        self.most = program.forks if isinstance(program, PythonModule) else 0
        self._current: Zygote | None = None
        """The one that forks."""
        self._all: set[Zygote] = set()
        self._start: asyncio.Task[None] | None = None
        """The life of a zygote that is not ready yet."""
        self._wanted = 0
        """Orders that wait for a zygote."""

    @property
    def pending(self) -> int:
        """See `WorkerSource`."""
        return self._wanted + (self._current.ordered if self._current is not None else 0)

    @property
    def reads_files(self) -> bool:
        """See `WorkerSource`: starting a zygote does. One that there is has its code in its memory."""
        return self._current is None and self._start is None

    @property
    def is_idle(self) -> bool:
        """See `WorkerSource`."""
        return not self._all and self._start is None

    def infos(self) -> tuple[WorkerInfo, ...]:
        """See `WorkerSource`: the zygotes."""
        return tuple(zygote.worker.info for zygote in self._all)

    def order(self) -> None:
        """See `WorkerSource`."""
        if self._current is not None:
            self._current.order()
            return
        self._wanted += 1
        if self._start is None:
            self._start = self._tasks.create_task(self._run_zygote(), name=f"zygote of {self._context.spec.plugin}")
            # A callback, since a task that is cancelled before its first step has none.
            self._start.add_done_callback(self._forget_start)

    def stop(self) -> None:
        """See `WorkerSource`."""
        self._wanted = 0
        if self._start is not None:
            self._start.cancel()
        for zygote in tuple(self._all):
            self._replace(zygote)

    def kill(self) -> None:
        """See `WorkerSource`."""
        self.stop()
        for zygote in self._all:
            zygote.worker.kill()

    async def _run_zygote(self) -> None:
        """One zygote, from its launch until its last child has ended."""
        plugin, zygote = self._context.spec.plugin, None
        try:
            async with started_zygote(self._context) as zygote, asyncio.TaskGroup() as children:
                self._all.add(zygote)
                self._context.records.started(zygote.worker)
                self._current, self._start = zygote, None
                wanted, self._wanted = self._wanted, 0
                for _ in range(wanted):
                    zygote.order()
                await self._fork(zygote, children)
                await zygote.until_childless()
                await zygote.worker.end()  # it has nothing to finish, and children that are left die with it
        except WorkerUnavailableError as error:
            self._context.records.failed(error.error)
            self._workers.fail(error.error)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            self._workers.fail(faults.internal_error(plugin, error))
        finally:
            if zygote in self._all:
                self._all.discard(zygote)
                self._context.records.ended(zygote.worker, zygote.served)
                if zygote.ordered:
                    self._lose_orders(zygote, zygote.worker.life.cause)
                self._replace(zygote)
            self._workers.wakeup.notify()

    def _forget_start(self, start: asyncio.Task[None]) -> None:
        if self._start is start:
            self._start = None
            self._wanted = 0
            self._workers.wakeup.notify()

    async def _fork(self, zygote: Zygote, children: asyncio.TaskGroup) -> None:
        """Take the children that were ordered until there will be no more. Orders of one that died are left to it."""
        try:
            while (child := await zygote.next_child()) is not None:
                children.create_task(self._run_child(zygote, child))
        except LaunchError as error:
            self._replace(zygote)
            self._lose_orders(zygote, refusal(self._context.spec.plugin, error))

    def _lose_orders(self, zygote: Zygote, error: CallError | None) -> None:
        """What was ordered is ordered again by the pool, unless nothing good ever came of this zygote."""
        if error is not None and not zygote.served:
            self._workers.fail(error)
        self._workers.wakeup.notify()

    async def _run_child(self, zygote: Zygote, child: ForkedProcess) -> None:
        """One child, from its birth to its end."""
        try:
            worker = await self._adopt(zygote, child)
            if worker is not None:
                await self._run_worker(zygote, worker)
        except LaunchError as error:
            zygote.break_off(error)
        except WorkerUnavailableError as error:
            self._workers.fail(error.error)
        except Exception as error:  # noqa: BLE001 - as in `_run_zygote`
            self._workers.fail(faults.internal_error(self._context.spec.plugin, error))

    async def _run_worker(self, zygote: Zygote, worker: ProcessWorker) -> None:
        zygote.children.add(worker)
        try:
            async with worker:
                worker.skip_greeting()
                self._workers.add(worker)
                await worker.serve()
        finally:
            self._workers.remove(worker)
            self._lose(zygote, worker)

    async def _adopt(self, zygote: Zygote, child: ForkedProcess) -> ProcessWorker | None:
        """A worker of a child that was ordered, in a cgroup of its own. None: its zygote was stopped meanwhile."""
        context = self._context
        try:
            await zygote.cgroups.move(child)
        except BaseException:
            await end_off_loop(child.close)
            raise
        if zygote.stopped:
            await end_off_loop(child.close)
            return None
        zygote.ordered -= 1
        return await make_worker(
            context.spec,
            context.new_id(),
            child,
            log=context.log,
            settings=context.settings,
            plugin_requests=context.plugin_requests,
            one_call=True,
        )

    def _lose(self, zygote: Zygote, worker: ProcessWorker) -> None:
        """A child is dead.

        One that ended in another way than with its call's result takes its zygote with it, and the unused children of
        that: nobody knows what it did.
        """
        zygote.children.discard(worker)
        zygote.served += worker.table.served
        if worker.life.failed or not (worker.table.untouched or worker.table.served):
            self._replace(zygote)
            for sibling in zygote.children & set(self._workers.unused):
                sibling.kill()
        zygote.worker.life.notify()

    def _replace(self, zygote: Zygote) -> None:
        """Order nothing of it any more; it ends with its last child."""
        zygote.stop()
        if self._current is zygote:
            self._current = None
