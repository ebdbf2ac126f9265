"""One zygote: a worker that runs no calls, from which a process is forked for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood_sandbox import ForkServer, LaunchError, PythonModule, SandboxError

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.text import printable
from fumehood_server.workers import faults
from fumehood_server.workers.pools.call_cgroups import CallLeaves
from fumehood_server.workers.process.start import ended, launch_error, launched, opened
from fumehood_server.workers.process.worker import ProcessWorker

if TYPE_CHECKING:
    from fumehood_sandbox import ForkedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.settings import WorkerSettings


ANSWER_S = 15.0
"""For the answer to an order. The fork supervisor gives up on a child after 5 s; a silent one is stopped."""


class Zygote:
    """A process with the plugin imported and nothing else done, and what is forked from it. Made by `hatch`."""

    def __init__(self, server: ForkServer, worker: ProcessWorker) -> None:
        """Take over both; `worker` is ready and `server` attends it."""
        plugin = worker.spec.plugin
        self._leaves = CallLeaves(worker.spec.policy, on_child=self._bring, on_failed=self._move_failed)
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._plugin = plugin
        self._approval: asyncio.Future[CallError | None] = self._loop.create_future()
        self._on_child: Callable[[ForkedProcess], None] = _nobody
        self._on_broken: Callable[[CallError], None] = _ignore
        self._open = True
        self.worker = worker
        self.children: set[ProcessWorker] = set()
        """Its children that live."""
        self.has_served = False
        """Whether a child has given a result."""
        self.ordered = 0
        """Children that were ordered and are not there."""
        self._heard_at = 0.0
        """When the last answer came, or the first order since."""
        self._late: asyncio.TimerHandle | None = None
        self._loop.add_reader(server.fileno(), self._answered)

    async def approved(self) -> None:
        """Have it looked at from outside, and made ready to fork.

        Raises:
            WorkerUnavailableError: its import left what calls would share, or this machine can't hold calls apart.
        """
        self._server.request_approval()
        failure = await self._approval
        if failure is not None:
            raise WorkerUnavailableError(failure)

    def serve(self, on_child: Callable[[ForkedProcess], None], on_broken: Callable[[CallError], None]) -> None:
        """Say who takes the children, and who is told that there will be no more."""
        self._on_child = on_child
        self._on_broken = on_broken

    def order(self) -> None:
        """Have one more child forked."""
        if not self.ordered:
            self._heard_at = self._loop.time()
            if self._late is None:
                self._late = self._loop.call_later(ANSWER_S, self._look)
        self.ordered += 1
        try:
            self._server.request_child(self._leaves.for_next())
        except LaunchError as error:
            self._loop.call_soon(self._move_failed, error)

    def _look(self) -> None:
        """See that orders are answered. Rests where there are none."""
        self._late = None
        if self.ordered:
            left_s = self._heard_at + ANSWER_S - self._loop.time()
            if left_s > 0:
                self._late = self._loop.call_later(left_s, self._look)
            else:
                self._break(refusal(self._plugin, LaunchError("attendant", f"no answer after {ANSWER_S:g} s")))

    def _answered(self) -> None:
        self._heard_at = self._loop.time()
        with contextlib.suppress(BlockingIOError):
            while self._open:
                try:
                    child = self._server.receive_answer()
                except LaunchError as error:
                    self._break(refusal(self._plugin, error))
                    return
                if child is not None:
                    self._leaves.take(child)
                elif not self._approval.done():
                    self._approval.set_result(None)

    def _bring(self, child: ForkedProcess) -> None:
        if self._open:
            self.ordered -= 1
            self._on_child(child)
        else:
            child.close()

    def _move_failed(self, error: LaunchError) -> None:
        if self._open:
            self._break(refusal(self._plugin, error))

    def _break(self, error: CallError) -> None:
        self.stop()
        if self._approval.done():
            self._on_broken(error)
        else:
            self._approval.set_result(error)

    def stop(self) -> None:
        """Take no more children, and let those that there are finish. Idempotent."""
        if self._open:
            self._open = False
            self.ordered = 0
            if self._late is not None:
                self._late.cancel()
            self._loop.remove_reader(self._server.fileno())

    def finish(self) -> None:
        """End it, with what is left of its children. Idempotent."""
        self.stop()
        self._server.close()
        self._leaves.close()
        self.worker.finish()


async def hatch(
    spec: WorkerSpec,
    worker_id: str,
    *,
    log: PluginLog,
    settings: WorkerSettings,
    on_change: Callable[[ProcessWorker], None],
) -> Zygote:
    """Start a zygote and have it approved. The caller owns it. Cancelling leaves no process behind.

    Raises:
        WorkerUnavailableError: it can't be had.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.start_timeout_s
    if not isinstance(spec.program, PythonModule):
        raise TypeError("only Python modules can be forked")
    try:
        server = ForkServer(spec.policy, spec.program)
    except (SandboxError, OSError) as error:
        raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error
    try:
        process = await launched(server.launching, spec, settings)
        try:
            server.start_supervisor(process)
            worker = ProcessWorker(
                spec,
                worker_id,
                process,
                log=log,
                settings=settings,
                start_timeout_s=max(deadline - loop.time(), 0.0),
                on_change=on_change,
            )
        except (SandboxError, OSError) as error:
            process.close()
            raise WorkerUnavailableError(launch_error(spec.plugin, error)) from error
        await opened(worker)
    except BaseException:
        server.close()
        raise
    zygote = Zygote(server, worker)
    try:
        async with asyncio.timeout(settings.start_timeout_s):
            await zygote.approved()
    except BaseException as error:
        zygote.finish()
        await ended(worker)
        if isinstance(error, TimeoutError):
            raise WorkerUnavailableError(faults.never_ready_error(spec.plugin, settings.start_timeout_s, ())) from error
        raise
    return zygote


def refusal(plugin: str, error: LaunchError) -> CallError:
    """What a call is told of a child that can't be had."""
    if error.step != "zygote":
        return launch_error(plugin, error)
    return CallError(
        code=Code.CONFIG_PLUGIN_INVALID,
        message=f'plugin "{plugin}" can\'t have a process for each call: {printable(error.problem)}',
        details={
            "plugin": plugin,
            "reason": "zygote_refused",
            "problem": printable(error.problem),
            "path": printable(error.path),
        },
    )


def _nobody(child: ForkedProcess) -> None:
    child.close()


def _ignore(error: CallError) -> None:
    del error
