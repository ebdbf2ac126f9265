"""One sandboxed process that runs calls: its life from `Hello` to its reaping, as one coroutine."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.worker import WorkerInfo, WorkerState
from fumehood_server.secrets import SecretUnavailableError
from fumehood_server.workers import faults
from fumehood_server.workers.faults import EscalationStep, Violation
from fumehood_server.workers.limits.meter import Meter
from fumehood_server.workers.process.attempt import AttemptContext, AttemptTable, WorkerAttempt
from fumehood_server.workers.process.ending import Ending, EndingParts
from fumehood_server.workers.process.greeting import definitions_error
from fumehood_server.workers.process.lifecycle import EndRequest, Lifecycle
from fumehood_server.workers.process.limit_enforcement import LimitEnforcement
from fumehood_server.workers.process.receipts import receipt_of
from fumehood_server.workers.process.requests import RequestRouter
from fumehood_server.workers.process.watch import Watch
from fumehood_server.workers.process.worker_output import WorkerOutput
from fumehood_server.workers.wire import messages
from fumehood_server.workers.wire.pipes import PipeWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fumehood.v1 import plugin_pb2
    from fumehood_sandbox import Receipt, SandboxedProcess

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import Invocation
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.settings import WorkerSettings


class ProcessWorker:
    """A worker (`model.worker.Worker`) that is a process of this machine. An async context manager.

    Its life, in the task that enters the context:

    1. `async with`: it is watched and read from now on;
    2. `greet`: `Hello` is sent, `Ready` awaited (a forked process that needs neither is ready at once);
    3. `serve`: calls are sent by `invoke`, until it gets no new ones;
    4. leaving the context: drain, shutdown frame, SIGTERM, SIGKILL, reap, and an answer for every call that is left.
       A step is left out where the process has exited, or more was asked for. Cancelling it kills at once; it goes
       on to the end all the same, for what it left would be a process that nobody has reaped.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        worker_id: str,
        process: SandboxedProcess,
        *,
        log: PluginLog,
        settings: WorkerSettings,
        plugin_requests: PluginRequestHandler | None = None,
        one_call: bool = False,
    ) -> None:
        """Take over `process`, which runs: leaving the context closes it.

        `one_call`: it serves one call and is killed with the result. `plugin_requests` answers their requests to
        the sidecar; without it all is refused.
        """
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.worker_id = worker_id
        self.max_concurrent_calls = spec.max_concurrent_calls
        self.started_at = time.time()
        self.born_at = loop.time()
        self._process = process
        self._process_id = process.pid
        self._log = log
        self._settings = settings
        self._plugin_requests = plugin_requests
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe, False)
        self._tasks = asyncio.TaskGroup()
        self.table = AttemptTable()
        """Its calls."""
        life = self.life = Lifecycle(spec.plugin, worker_id, log)
        """Its state, and how its end is asked for."""
        self._meter = Meter(process)
        self.receipt: Receipt = receipt_of(process.receipt, self._meter, one_call=one_call, all_levels=spec.all_levels)
        """What holds the process."""
        self._writer = PipeWriter(
            process.stdin, functools.partial(life.pipe_closed, Violation.STDIN_CLOSED, "it closed its stdin")
        )
        self._requests = RequestRouter(
            spec, plugin_requests, log.redactor, writer=self._writer, table=self.table, life=life
        )
        self._limits = LimitEnforcement(process, spec, self._meter, self.table, life)
        self._output = WorkerOutput(
            process,
            spec,
            worker_id,
            log=log,
            settings=settings,
            life=life,
            table=self.table,
            requests=self._requests,
            limits=self._limits,
            one_call=one_call,
        )
        self._attempts = AttemptContext(
            spec=spec,
            settings=settings,
            life=life,
            table=self.table,
            writer=self._writer,
            output=self._output,
            requests=self._requests,
            meter=self._meter,
        )
        self._watch = Watch(life, self._limits, settings, self._tasks)
        self._ending = Ending(
            EndingParts(
                process=process,
                spec=spec,
                worker_id=worker_id,
                log=log,
                settings=settings,
                life=life,
                table=self.table,
                writer=self._writer,
                output=self._output,
                requests=self._requests,
                limits=self._limits,
                meter=self._meter,
                watch=self._watch,
                one_call=one_call,
            )
        )

    @property
    def state(self) -> WorkerState:
        """Where it stands."""
        return self.life.state

    @property
    def ended_by(self) -> EscalationStep:
        """The hardest means that was used to end it."""
        return self._ending.escalated_to

    @property
    def exit(self) -> str:
        """How it ended, in words. Empty while it lives."""
        return self._ending.exit

    @property
    def greeting(self) -> plugin_pb2.Ready:
        """Its `Ready`."""
        return self._output.greeting

    def forget_greeting(self) -> None:
        """Let go of the `Ready`, which `describe` alone reads: a hostile one can be as large as a frame."""
        self._output.forget_greeting()

    @property
    def info(self) -> WorkerInfo:
        """The worker as the operator sees it."""
        dead = self.state is WorkerState.DEAD
        return WorkerInfo(
            worker_id=self.worker_id,
            spec=self.spec,
            state=self.state,
            calls_in_flight=len(self.table.under_way),
            calls_served=self.table.served,
            started_at=self.started_at,
            process_id=0 if dead else self._process_id,
            receipt=None if dead else self.receipt,
        )

    def invoke(self, invocation: Invocation) -> WorkerAttempt:
        """Send one attempt; see `Worker.invoke`. `on_update` must not raise."""
        attempt = WorkerAttempt(self._attempts, self.table.last_id + 1, invocation)
        if self.state is WorkerState.READY:
            attempt.send()
        else:
            attempt.lose(self.life.cause or faults.ending_error(self.spec.plugin), EscalationStep.CANCEL_FRAME)
        return attempt

    def finish(self) -> None:
        """Ask for its end, by a shutdown frame first. Idempotent."""
        self.life.request(EndRequest.SHUTDOWN)

    def kill(self, cause: CallError | None = None) -> None:
        """Ask for its end by SIGKILL. Calls under way end by `cause`. Idempotent."""
        self.life.request(EndRequest.KILL, cause)

    # Its life, in order.

    async def __aenter__(self) -> Self:
        """Watch and read it."""
        await self._tasks.__aenter__()
        process = self._process
        relay, process.relay = process.relay, None  # the router closes it, once the loop has let go of it
        self._requests.open(self._tasks, relay)
        try:
            self.life.watch_exits(process.pidfds())
            self._output.resume()
        except BaseException:  # the kernel watches no more descriptors for this process
            await self.__aexit__(*sys.exc_info())
            raise
        return self

    async def greet(self, timeout_s: float) -> None:
        """Send `Hello`, and wait for a `Ready` that is as it was accepted.

        Raises:
            WorkerUnavailableError: it died first, was not ready in time, or declares other tools. It is dead.
        """
        secrets = await self._start_secrets()
        self._writer.send(messages.hello(self.spec, max_frame_bytes=self._settings.max_frame_bytes, secrets=secrets))
        if not await self._watch.until(lambda: self.state is not WorkerState.STARTING, within_s=timeout_s):
            words = self._log.last_words(self.worker_id)
            if not self.life.exited:
                timeout_s, mid_frame = self._settings.start_timeout_s, self._output.mid_frame
                self.life.fail(faults.never_ready_error(self.spec.plugin, timeout_s, words, mid_frame=mid_frame))
        elif self.state is WorkerState.READY:
            problem = await definitions_error(self.spec, self.greeting)
            if problem is not None:
                self.life.request(EndRequest.KILL, problem)
            elif 0 < self.greeting.max_concurrent_calls < self.max_concurrent_calls:
                self.max_concurrent_calls = self.greeting.max_concurrent_calls
        if self.state is not WorkerState.READY:
            raise WorkerUnavailableError(await self.end())
        self._limits.before_first_call()

    async def _start_secrets(self) -> Mapping[str, bytes]:
        """The secrets that it gets with its `Hello`, redacted from now on in what it says.

        Raises:
            WorkerUnavailableError: one can't be had. It is dead.
        """
        if not (self.spec.hands_secrets and self.spec.secrets) or self._plugin_requests is None:
            return {}
        try:
            values = await self._plugin_requests.start_secrets(self.spec)
        except SecretUnavailableError as error:
            self.life.request(EndRequest.KILL, faults.secret_unavailable_error(self.spec.plugin, error))
            raise WorkerUnavailableError(await self.end()) from error
        for name, value in values.items():
            await self._log.redactor.learn_beside(name, value)
        return values

    def skip_greeting(self) -> None:
        """It was forked from a process that was greeted."""
        self._output.skip_greeting()
        self.life.become_ready()

    async def serve(self) -> None:
        """Return when it gets no new calls: it was asked to end, or has exited."""
        await self._watch.until(lambda: self.life.requested > EndRequest.NONE)

    async def until(self, condition: Callable[[], bool], *, within_s: float = math.inf) -> bool:
        """As `serve`, or when something else is so of which `life.notify` tells; says whether that is so."""
        await self._watch.until(lambda: self.life.requested > EndRequest.NONE or condition(), within_s=within_s)
        return condition()

    async def end(self) -> CallError:
        """End it at once, for it did not become what it was started for. Returns what it died of."""
        if not self.life.exited:
            self.life.request(EndRequest.KILL)
        await self._ending.run()
        cause = self.life.cause or faults.ending_error(self.spec.plugin)
        if self._output.greeted or "stderr" in cause.details:
            return cause
        return faults.with_last_lines(cause, self._log.last_words(self.worker_id))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, from wherever it stands."""
        if error is not None:
            self.kill()
        try:
            await self._ending.run()
        finally:
            await self._tasks.__aexit__(None, None, None)
