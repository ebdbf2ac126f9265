"""Fresh workers for one call each, forked from a zygote that is replaced whenever a call may have left something."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_sandbox import PythonModule

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import SPARE_FORKS
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.pools.zygote import Zygote, hatch
from fumehood_server.workers.process.worker import ProcessWorker

if TYPE_CHECKING:
    from fumehood_sandbox import ForkedProcess

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import WorkerInfo
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.settings import WorkerSettings


class Nursery:
    """Has children forked to order, from one zygote at a time. Those of earlier zygotes finish their calls."""

    spares = SPARE_FORKS

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        log: PluginLog,
        settings: WorkerSettings,
        ids: itertools.count[int],
        on_fresh: Callable[[ProcessWorker], None],
        on_failed: Callable[[CallError], None],
        on_change: Callable[[ProcessWorker], None],
        on_lost: Callable[[], None],
        plugin_requests: PluginRequestHandler | None,
    ) -> None:
        """See `CallPool`."""
        self.most = spec.program.forks if isinstance(spec.program, PythonModule) else 0
        """Most children at a time."""
        self._spec = spec
        self._log = log
        self._settings = settings
        self._ids = ids
        self._on_fresh = on_fresh
        self._on_failed = on_failed
        self._on_change = on_change
        self._plugin_requests = plugin_requests
        self._on_lost = on_lost
        self._current: Zygote | None = None
        self._all: set[Zygote] = set()
        self._start: asyncio.Task[None] | None = None
        self._wanted = 0
        """Orders that wait for a zygote."""

    @property
    def pending(self) -> int:
        """How many children were ordered and are not there."""
        return self._wanted + (self._current.ordered if self._current is not None else 0)

    @property
    def reads_files(self) -> bool:
        """Whether an order would start a zygote. One that there is has its code in its memory."""
        return self._current is None and self._start is None

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing."""
        return not self._all and self._start is None

    def infos(self) -> tuple[WorkerInfo, ...]:
        """The zygotes."""
        return tuple(zygote.worker.info for zygote in self._all)

    def order(self) -> None:
        """Have one more child made."""
        if self._current is not None:
            self._current.order()
            return
        self._wanted += 1
        if self._start is None:
            worker_id = f"{self._spec.plugin}-zygote-{next(self._ids)}"
            self._start = asyncio.get_running_loop().create_task(self._hatch(worker_id), name=f"start {worker_id}")
            self._start.add_done_callback(self._over)

    def _over(self, start: asyncio.Task[None]) -> None:
        if start.cancelled():
            self._start = None
            self._wanted = 0
            self._on_lost()

    async def _hatch(self, worker_id: str) -> None:
        try:
            zygote = await hatch(
                self._spec, worker_id, log=self._log, settings=self._settings, on_change=self._zygote_changed
            )
        except WorkerUnavailableError as error:
            self._fail(error.error)
            return
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            self._fail(faults.internal_error(self._spec.plugin, error))
            return
        self._start = None
        self._all.add(zygote)
        zygote.serve(lambda child: self._born(zygote, child), lambda error: self._broken(zygote, error))
        if zygote.worker.state is not WorkerState.READY:
            self._zygote_changed(zygote.worker)
            self._fail(zygote.worker.cause or faults.condemned_error(self._spec.plugin))
            return
        self._current = zygote
        wanted, self._wanted = self._wanted, 0
        for _ in range(wanted):
            zygote.order()

    def _fail(self, error: CallError) -> None:
        self._start = None
        self._wanted = 0
        self._on_failed(error)

    def _born(self, zygote: Zygote, child: ForkedProcess) -> None:
        try:
            worker = ProcessWorker(
                self._spec,
                f"{self._spec.plugin}-{next(self._ids)}",
                child,
                log=self._log,
                settings=self._settings,
                start_timeout_s=self._settings.start_timeout_s,
                on_change=self._on_change,
                plugin_requests=self._plugin_requests,
                one_call=True,
                is_ready=True,
            )
        except OSError as error:
            child.close()
            self._on_failed(faults.internal_error(self._spec.plugin, error))
            return
        zygote.children.add(worker)
        self._on_fresh(worker)

    def _broken(self, zygote: Zygote, error: CallError) -> None:
        """It forks no more, for a reason that is not a call's."""
        self._replace(zygote)
        self._orders_lost(zygote, error)

    def _orders_lost(self, zygote: Zygote, error: CallError) -> None:
        """What was ordered is ordered again, unless nothing good ever came of this zygote."""
        if zygote.has_served:
            self._on_lost()
        else:
            self._on_failed(error)

    def _zygote_changed(self, worker: ProcessWorker) -> None:
        """A zygote takes no more orders, or is dead; its children die with it."""
        for zygote in tuple(self._all):
            if zygote.worker is worker:
                ordered = zygote.ordered
                self._replace(zygote)
                if worker.state is WorkerState.DEAD:
                    # Its children die with it, but it may be heard of first: no later one finds it here to finish it.
                    zygote.finish()
                    self._all.discard(zygote)
                if ordered and worker.cause is not None:
                    self._orders_lost(zygote, worker.cause)
                elif self.is_idle:
                    self._on_lost()

    def lost(self, worker: ProcessWorker) -> frozenset[ProcessWorker]:
        """A worker is dead. Returns those that no call should get any more.

        One that ended in another way than with its call's result takes its zygote with it: nobody knows what it did.
        """
        tainted: frozenset[ProcessWorker] = frozenset()
        for zygote in tuple(self._all):
            if worker in zygote.children:
                zygote.children.discard(worker)
                zygote.has_served |= worker.calls_served > 0
                if worker.failed or not (worker.table.untouched or worker.calls_served):
                    tainted = frozenset(zygote.children)
                    self._replace(zygote)
                if zygote is not self._current and not zygote.children:
                    zygote.finish()
        return tainted

    def _replace(self, zygote: Zygote) -> None:
        zygote.stop()
        if self._current is zygote:
            self._current = None
        if not zygote.children:
            zygote.finish()

    def finish(self) -> None:
        """Fork no more; end each zygote when its last child has ended."""
        self._wanted = 0
        if self._start is not None:
            self._start.cancel()
        for zygote in tuple(self._all):
            self._replace(zygote)

    async def close(self) -> None:
        """See that nothing is left."""
        start = self._start
        self.finish()
        if start is not None:
            await asyncio.wait((start,))
            self._start = None
        for zygote in tuple(self._all):
            zygote.finish()
        if self._all:
            await asyncio.wait([zygote.worker.dead for zygote in self._all])

    def kill(self) -> None:
        """End every process at once, for an owner who can't wait."""
        self.finish()
        for zygote in tuple(self._all):
            zygote.worker.kill()
