"""What the journal is told of processes that serve more than one call: ready, gone, not to be had."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fumehood_server.model.events import About, Fault, policy_document, receipt_document
from fumehood_server.model.journal import Journal
from fumehood_server.model.operation_events import WorkerEnded, WorkerStarted, WorkerStartFailed

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.process.worker import ProcessWorker


class WorkerRecords:
    """Records starts and ends of workers with one spec. A process for one call is told of by events of that call."""

    __slots__ = ("_about", "_journal", "_spec")

    def __init__(self, journal: Journal | None, spec: WorkerSpec) -> None:
        """None: record nothing."""
        self._journal = journal if journal is not None and journal.recording else None
        self._spec = spec
        self._about = About(plugin=spec.plugin)

    def started(self, worker: ProcessWorker) -> None:
        """It is ready."""
        if self._journal is None:
            return
        receipt = receipt_document(worker.receipt)
        event = WorkerStarted(
            worker_id=worker.worker_id,
            plugin=self._spec.plugin_digest,
            level=self._spec.policy.level.value,
            backend=worker.receipt.backend,
            isolation=self._spec.isolation.value,
            receipt=receipt.digest.hex(),
        )
        self._journal.record(event, self._about, (), (receipt, policy_document(self._spec.policy)))

    def ended(self, worker: ProcessWorker, calls_served: int) -> None:
        """It is gone."""
        if self._journal is None:
            return
        life = worker.life
        event = WorkerEnded(
            worker_id=worker.worker_id,
            by_itself=life.failed,
            ended_by=worker.ended_by.value,
            exit=worker.exit,
            cause=_fault(life.cause) if life.failed and life.cause is not None else None,
            calls_served=calls_served,
            lived_us=round((asyncio.get_running_loop().time() - worker.born_at) * 1e6),
        )
        self._journal.record(event, self._about)

    def failed(self, error: CallError) -> None:
        """None could be started. Pools leave it alone for a while after that."""
        if self._journal is not None:
            level = self._spec.policy.level.value
            event = WorkerStartFailed(plugin=self._spec.plugin_digest, level=level, cause=_fault(error))
            self._journal.record(event, self._about)


def _fault(error: CallError) -> Fault:
    """Without the process's last lines, which stand in its log."""
    fault = Fault.of(error)
    fault.message = fault.message.split("\n", 1)[0]
    return fault
