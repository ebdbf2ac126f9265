"""A zygote: a worker that runs no calls, from which a process is forked for each."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fumehood_sandbox import SUPERVISOR_STEP, ForkServer, LaunchError, PythonModule

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.launches import end_off_loop
from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.text import printable
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.pools.call_cgroups import CallCgroups
from fumehood_server.workers.process.lifecycle import EndRequest
from fumehood_server.workers.process.start import launch_error, launched, make_worker, started

if TYPE_CHECKING:
    from fumehood_sandbox import ForkedProcess

    from fumehood_server.workers.pools.interface import PoolContext
    from fumehood_server.workers.process.worker import ProcessWorker

IMPORT_STEP = "zygote"
"""The step of a `LaunchError` that the plugin's import is to blame for."""


class Zygote:
    """A process with the plugin imported and nothing else done, and the fork supervisor beside it.

    Its life is that of `worker`, in whose coroutine `next_child` is awaited.
    """

    def __init__(self, server: ForkServer, worker: ProcessWorker, *, answer_s: float) -> None:
        """`worker` is greeted, and `server` is its fork server. Both stay their owner's.

        An order is answered within `answer_s`.
        """
        self._server = server
        self._answer_s = answer_s
        self._clock = asyncio.get_running_loop().time
        self._readable = False
        self._answered_at = 0.0
        """When the last answer came, or the first order since."""
        self._error: LaunchError | None = None
        self.worker = worker
        self.cgroups = CallCgroups(worker.spec.policy)
        self.children: set[ProcessWorker] = set()
        """Its children that live."""
        self.served = 0
        """Results that its children have given."""
        self.stopped = False
        """Whether it forks no more."""
        self.ordered = 0
        """Children that were ordered and are not there."""
        self._without_leaf = 0
        """How many of them wait for a new cgroup leaf to be requested in."""

    async def be_approved(self) -> None:
        """Have it looked at from outside, and made ready to fork. Returns also where it has died of that.

        Raises:
            LaunchError: its import left what calls would share, or this machine can't hold calls apart.
        """
        self._server.request_approval()
        while not self._is_ending:
            with contextlib.suppress(BlockingIOError):
                self._server.receive_answer()
                return
            await self._until_readable()

    def order(self) -> None:
        """Have one more child forked."""
        if not self.ordered:
            self._answered_at = self._clock()
        self.ordered += 1
        leaf = self.cgroups.take_empty() if self.cgroups.joined else None
        if leaf is None and self.cgroups.joined:
            self._without_leaf += 1
            self.worker.life.notify()
            return
        try:
            self._server.request_child(leaf)
        except LaunchError as error:
            self.break_off(error)

    async def next_child(self) -> ForkedProcess | None:
        """The next child that was ordered, or None when there will be no more: it was stopped, or is ending.

        Raises:
            LaunchError: it can fork no more.
        """
        while not self.stopped and not self._is_ending:
            if self._error is not None:
                raise self._error
            if self._without_leaf:
                await self._request_in_new_leaf()
                continue
            with contextlib.suppress(BlockingIOError):
                child = self._server.receive_answer()
                self._answered_at = self._clock()
                if child is not None:
                    return child
                continue
            left_s = self._answered_at + self._answer_s - self._clock() if self.ordered else math.inf
            if left_s <= 0:
                raise LaunchError(SUPERVISOR_STEP, f"no answer after {self._answer_s:g} s")
            await self._until_readable(left_s)
        return None

    async def _request_in_new_leaf(self) -> None:
        """Request one of the children that were ordered when there was no empty leaf."""
        leaf = await self.cgroups.make_leaf()
        if self.stopped or self._is_ending:
            if leaf is not None:
                await self.cgroups.discard(leaf)
            return
        self._without_leaf -= 1
        self._server.request_child(leaf)

    @property
    def _is_ending(self) -> bool:
        return self.worker.life.exited or self.worker.life.requested > EndRequest.NONE

    async def until_childless(self) -> None:
        """Wait for the end of its children, or of itself, with which they end."""
        await self.worker.until(lambda: not self.children)

    def break_off(self, error: LaunchError) -> None:
        """Fork no more, for this reason."""
        self._error = self._error or error
        self.worker.life.notify()

    def stop(self) -> None:
        """Fork no more, and let those children finish that there are. Idempotent."""
        self.stopped = True
        self.ordered = self._without_leaf = 0
        self.worker.life.notify()

    def _answers_came(self) -> None:
        self._readable = True
        self.worker.life.notify()

    async def _until_readable(self, within_s: float = math.inf) -> None:
        """Wait for answers, watched for only meanwhile: one that nobody takes would wake the loop for ever."""
        loop, fd = asyncio.get_running_loop(), self._server.fileno()
        self._readable = False
        loop.add_reader(fd, self._answers_came)
        try:
            await self.worker.until(
                lambda: self._readable or self.stopped or self._error is not None or self._without_leaf > 0,
                within_s=within_s,
            )
        finally:
            loop.remove_reader(fd)


@asynccontextmanager
async def started_zygote(context: PoolContext) -> AsyncIterator[Zygote]:
    """A zygote that is ready and approved, within the block. Leaving the block ends it, and its children with it.

    Raises:
        WorkerUnavailableError: on entering: it can't be had.
    """
    async with greeted_zygote(context) as zygote:
        zygote.worker.forget_greeting()
        try:
            await approve(zygote, context.settings.start_timeout_s)
        except LaunchError as error:
            raise WorkerUnavailableError(refusal(context.spec.plugin, error)) from error
        yield zygote


@asynccontextmanager
async def greeted_zygote(context: PoolContext) -> AsyncIterator[Zygote]:
    """A zygote that is ready and not approved, within the block. Leaving the block ends it, and its children with it.

    Raises:
        WorkerUnavailableError: on entering: it can't be had.
    """
    spec, settings = context.spec, context.settings
    if not isinstance(spec.program, PythonModule):
        raise TypeError("only Python modules can be forked")
    clock = asyncio.get_running_loop().time
    deadline = clock() + settings.start_timeout_s
    worker_id = context.new_id("zygote-")
    server = await started(spec, functools.partial(ForkServer, spec.policy, spec.program), undo=_abandon)
    try:
        process = await launched(server.launching, spec, settings)
        try:
            await started(spec, lambda: server.start_supervisor(process), undo=lambda _: None)
        except BaseException:
            await end_off_loop(process.close)
            raise
        async with await make_worker(spec, worker_id, process, log=context.log, settings=settings) as worker:
            await worker.greet(deadline - clock())
            zygote = Zygote(server, worker, answer_s=settings.fork_answer_s)
            try:
                yield zygote
            finally:
                await end_off_loop(zygote.cgroups.close)
    finally:
        await end_off_loop(server.close)


def _abandon(server: ForkServer) -> None:
    server.launching.abort()
    server.close()


async def approve(zygote: Zygote, within_s: float) -> None:
    """Have it approved in time.

    Raises:
        LaunchError: it is not.
        WorkerUnavailableError: it was not in time, or has died.
    """
    worker = zygote.worker
    plugin = worker.spec.plugin
    try:
        async with asyncio.timeout(within_s):
            await zygote.be_approved()
    except TimeoutError as error:
        raise WorkerUnavailableError(faults.never_ready_error(plugin, within_s, ())) from error
    if worker.state is not WorkerState.READY or worker.life.exited:
        raise WorkerUnavailableError(await worker.end())


def refusal(plugin: str, error: LaunchError) -> CallError:
    """What a call is told of a child that can't be had."""
    if error.step != IMPORT_STEP:
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
