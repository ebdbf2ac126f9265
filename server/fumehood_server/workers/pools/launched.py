"""Fresh workers for one call each, launched one by one: for programs that can't be forked."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.workers import faults
from fumehood_server.workers.process.start import start
from fumehood_server.workers.settings import SPARE_LAUNCHES

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import WorkerInfo
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.worker import ProcessWorker
    from fumehood_server.workers.settings import WorkerSettings


class Relaunch:
    """Launches a sandbox for each order."""

    spares = SPARE_LAUNCHES

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
        self.most = spec.max_workers
        """Most processes at a time."""
        self._spec = spec
        self._log = log
        self._settings = settings
        self._ids = ids
        self._on_fresh = on_fresh
        self._on_failed = on_failed
        self._on_change = on_change
        self._on_lost = on_lost
        self._plugin_requests = plugin_requests
        self._starts: set[asyncio.Task[None]] = set()

    @property
    def pending(self) -> int:
        """How many workers were ordered and are not there."""
        return len(self._starts)

    @property
    def reads_files(self) -> bool:
        """Whether an order would read the program's files: each does."""
        return True

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing."""
        return not self._starts

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Nothing but the workers is a process here."""
        return ()

    def order(self) -> None:
        """Have one more worker made."""
        worker_id = f"{self._spec.plugin}-{next(self._ids)}"
        task = asyncio.get_running_loop().create_task(self._make(worker_id), name=f"start {worker_id}")
        self._starts.add(task)
        task.add_done_callback(self._over)

    def _over(self, start: asyncio.Task[None]) -> None:
        if start.cancelled():
            self._starts.discard(start)
            self._on_lost()

    async def _make(self, worker_id: str) -> None:
        task = asyncio.current_task()
        error: CallError | None = None
        try:
            worker = await start(
                self._spec,
                worker_id,
                log=self._log,
                settings=self._settings,
                on_change=self._on_change,
                plugin_requests=self._plugin_requests,
                one_call=True,
            )
        except WorkerUnavailableError as unavailable:
            error = unavailable.error
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave everybody who waits without an answer
            error = faults.internal_error(self._spec.plugin, exc)
        self._starts -= {task}
        if error is None:
            self._on_fresh(worker)
        else:
            self._on_failed(error)

    def lost(self, worker: ProcessWorker) -> frozenset[ProcessWorker]:
        """A worker is dead. The others have nothing of it."""
        del worker
        return frozenset()

    def finish(self) -> None:
        """Make no more."""
        for task in self._starts:
            task.cancel()

    async def close(self) -> None:
        """See that nothing is left."""
        self.finish()
        if self._starts:
            await asyncio.wait(tuple(self._starts))
            self._starts.clear()

    def kill(self) -> None:
        """Make no more, for an owner who can't wait."""
        self.finish()
