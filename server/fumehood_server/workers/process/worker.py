"""One sandboxed process that runs calls: from `Hello` to the last result, and what becomes of its calls if it fails."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood.v1 import plugin_pb2

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason, WorkerInfo, WorkerState
from fumehood_server.workers import faults
from fumehood_server.workers.faults import Rung, Violation
from fumehood_server.workers.limits.limits import Limits
from fumehood_server.workers.output.scrubbing import scrub_result
from fumehood_server.workers.output.stderr import LINES_BURST, LINES_PER_SECOND, StderrLines
from fumehood_server.workers.output.token_bucket import Allowance, LogRate
from fumehood_server.workers.process import lifecycle
from fumehood_server.workers.process.attempt import CallTable, WorkerCall
from fumehood_server.workers.process.cancelling import Cancelling
from fumehood_server.workers.process.ending import Ends, Ladder
from fumehood_server.workers.process.exits import ExitWatch
from fumehood_server.workers.process.lifecycle import WorkerEvent
from fumehood_server.workers.process.nobody import nobody
from fumehood_server.workers.process.receipts import receipt_of
from fumehood_server.workers.process.requests import HostCallRouter
from fumehood_server.workers.process.timers import Timers
from fumehood_server.workers.wire import messages
from fumehood_server.workers.wire.channel import Channel
from fumehood_server.workers.wire.incoming import Incoming
from fumehood_server.workers.wire.pipes import PipeReader

if TYPE_CHECKING:
    from fumehood_sandbox import Receipt, SandboxedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.worker import Invocation
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.settings import WorkerSettings


class ProcessWorker:
    """A worker (`model.worker.Worker`) that is a process of this machine.

    It is `STARTING` when made. `opened` resolves when that is over: with None when it is `READY`, else with the
    error that it died of. `dead` resolves when its process is gone and each of its calls has its result. Whoever
    makes one sees to it that `finish` or `kill` is called and awaits `dead`.

    The order in which it is ended: frame (`Cancel` of a call, `Shutdown` of a worker without calls), SIGTERM, kill
    of the namespace. A plugin that broke the wire gets the last at once.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        worker_id: str,
        process: SandboxedProcess,
        *,
        log: PluginLog,
        settings: WorkerSettings,
        start_timeout_s: float,
        on_change: Callable[[ProcessWorker], None],
        plugin_requests: PluginRequestHandler | None = None,
        one_call: bool = False,
        is_ready: bool = False,
    ) -> None:
        """`on_change` is called when the worker takes no more calls, and again when it is dead.

        `one_call`: it serves one call and is killed with the result. `is_ready`: it needs no `Hello` and sends no
        `Ready`, as a process that was forked from one that did. `plugin_requests` answers what its calls ask of the
        sidecar; without it all is refused.
        """
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.worker_id = worker_id
        self.state = WorkerState.STARTING
        self.greeting = plugin_pb2.Ready()
        self.max_concurrent_calls = spec.max_concurrent_calls
        self.calls_served = 0
        self.failed = False
        """Whether it ended by itself or by its own fault, not because it was asked to."""
        self.opened: asyncio.Future[CallError | None] = loop.create_future()
        self.dead: asyncio.Future[None] = loop.create_future()
        self.started_at = time.time()
        self.born = loop.time()
        self._loop = loop
        self._process = process
        self._process_id = process.pid
        self._log = log
        self._settings = settings
        self._on_change = on_change
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe, False)
        self.table = CallTable()
        """Its calls."""
        self._calls = self.table.under_way
        self.cause: CallError | None = None
        """What it died of. None while it lives and is well."""
        self._polite = False
        ends = Ends(
            condemn=self._condemn, finish=self.finish, kill=self.kill, fail=self._fail_unless_killed, say=self._say
        )
        self._limits = Limits(loop, process, spec, self._calls, ends)
        self._watch = self._limits.watch
        self._meter = self._limits.meter
        self.receipt: Receipt = receipt_of(process.receipt, self._meter, one_call=one_call)
        """What holds the process."""
        self._timers = Timers(loop)
        log_allowance = Allowance(burst=LINES_BURST, per_second=LINES_PER_SECOND, clock=loop.time)
        self._ladder = Ladder(
            loop,
            process,
            terminate_grace_s=settings.terminate_grace_of(spec.isolation),
            kill_confirm_s=settings.kill_confirm_s,
            say=self._say_rung,
            on_stuck=self._stuck,
        )
        log_rate = LogRate(limit_bytes=spec.log_bytes_per_second, clock=loop.time, on_over=self._limits.logged_too_much)
        self._stderr_lines = StderrLines(log, worker_id, log_allowance, log_rate)
        self._stderr = PipeReader(loop, process.stderr, self._stderr_lines.feed, self._bury_when_drained)
        self._plugin_requests = HostCallRouter(spec, plugin_requests, log.redactor, on_violation=self._violated)
        incoming = Incoming(
            worker_id,
            self.table,
            log=log,
            log_allowance=log_allowance,
            log_rate=log_rate,
            settings=settings,
            clock=loop.time,
            is_open=self.opened.done,
            on_ready=self._on_ready,
            on_result=self._on_result,
            on_violation=self._violated,
            plugin_requests=self._plugin_requests,
        )
        self._channel = Channel(
            loop,
            stdin=process.stdin,
            stdout=process.stdout,
            settings=settings,
            on_frame=incoming.frame,
            on_fault=self._on_channel_fault,
        )
        self._cancelling = Cancelling(
            loop,
            spec,
            settings,
            self._calls,
            channel=self._channel,
            plugin_requests=self._plugin_requests,
            timers=self._timers,
            ends=ends,
            end_ignorers=self._end_ignorers,
        )
        self._cancel: Callable[[WorkerCall, CancelReason], None] = self._cancelling.cancel
        relay, process.relay = process.relay, None  # whoever serves it closes it, once the loop has let go of it
        self._plugin_requests.open(self._channel, self.table, relay)
        self._exit = ExitWatch(loop, process, on_first=self._on_first_exit, on_all=self._on_exit)
        self._one_call = one_call
        self._begin(start_timeout_s, is_ready=is_ready)

    # What the executor and the pools use.

    @property
    def info(self) -> WorkerInfo:
        """The worker as the operator sees it."""
        return WorkerInfo(
            worker_id=self.worker_id,
            spec=self.spec,
            state=self.state,
            calls_in_flight=len(self._calls),
            calls_served=self.calls_served,
            started_at=self.started_at,
            process_id=0 if self.state is WorkerState.DEAD else self._process_id,
            receipt=None if self.state is WorkerState.DEAD else self.receipt,
        )

    def invoke(self, invocation: Invocation) -> WorkerCall:
        """Send one attempt; see `Worker.invoke`. `on_update` must not raise."""
        call = WorkerCall(self.table.last_id + 1, invocation, self._loop.create_future(), self._cancel)
        if self.state is not WorkerState.READY:
            cause = self.cause or faults.condemned_error(self.spec.plugin)
            call.fail(faults.lost_call_error(cause, self.spec.policy.level, dispatched=False))
            return call
        try:
            frame = messages.invoke(call.invocation_id, invocation)
        except ValueError as error:
            # Text that is not Unicode, such as half a surrogate pair, has no place in a protobuf string.
            call.fail(CallError(code=Code.TOOL_EXECUTION_FAILED, message=f"the call can't be sent: {error}"))
            return call
        channel = self._channel
        if len(frame) > self._settings.max_frame_bytes:
            call.fail(faults.too_large_error(self.spec.plugin, len(frame), self._settings.max_frame_bytes))
        elif channel.unsent_bytes > self._settings.max_unsent_bytes:
            call.fail(faults.unsent_error(self.spec.plugin, channel.unsent_bytes))
        else:
            self.table.last_id = call.invocation_id  # of those that are sent: see `CallTable.untouched`
            call.starts_at_byte = channel.queued_bytes
            call.measure(self._meter)
            if not self._watch.armed:
                self._watch.begin(call.cpu_ns_at_start)
            self._calls[call.invocation_id] = call
            channel.send(frame)
        return call

    def finish(self) -> None:
        """Take no new calls, and ask the process to exit; make it when it does not. Idempotent."""
        self._condemn()
        if self.state is WorkerState.ENDING and not self._polite and self._ladder.reached is None:
            self._polite = True
            self._channel.send(messages.shutdown(self._settings.shutdown_grace_s))
            self._timers.after("shutdown", self._settings.shutdown_grace_s, self._ladder.terminate)

    def kill(self, cause: CallError | None = None) -> None:
        """End the process at once. Calls under way end by `cause`. Idempotent."""
        if self.state is WorkerState.DEAD:
            return
        self.cause = self.cause or cause
        self._condemn()
        self._meter.note()
        self._channel.stop()
        self._ladder.kill()

    # What the plugin says.

    def _on_ready(self, ready: plugin_pb2.Ready) -> None:
        if self.opened.done():
            self._violated(Violation.SECOND_READY, "it said Ready twice")
        elif ready.protocol_version not in messages.PROTOCOL_VERSIONS:
            self._fail(faults.version_error(self.spec.plugin, ready.protocol_version, messages.PROTOCOL_VERSIONS))
        elif self.state is WorkerState.STARTING:
            self._timers.forget("start")
            self.greeting = ready
            if 0 < ready.max_concurrent_calls < self.max_concurrent_calls:
                self.max_concurrent_calls = ready.max_concurrent_calls
            self._become_ready()

    def _begin(self, start_timeout_s: float, *, is_ready: bool) -> None:
        if is_ready:
            self._become_ready()
        else:
            self._timers.after("start", start_timeout_s, self._never_ready)
            self._channel.send(messages.hello(self.spec, max_frame_bytes=self._settings.max_frame_bytes))

    def _become_ready(self) -> None:
        self.state = lifecycle.advance(self.state, WorkerEvent.BECAME_READY)
        self.opened.set_result(None)

    def _on_result(self, call: WorkerCall, message: plugin_pb2.Result) -> None:
        self.calls_served += 1
        self._plugin_requests.end(call.invocation_id)
        if self._log.redactor.active:
            scrub_result(message, self._log.redactor)
        if call.cancel_reason is None:
            result = messages.result(message, output_bytes=call.output_bytes)
            if result.error is not None:
                result = replace(result, error=self._limits.explained(result.error, call))
            if self._one_call:  # before the result is handed on, for nothing that it still does is anybody's
                self.kill()
            call.resolve(result)
        else:
            if self._one_call:
                self.kill()
            call.fail(self._cancelling.error(call, Rung.CANCEL_FRAME, tool_finished=not message.HasField("error")))
        if self.state is WorkerState.ENDING:
            self._cancelling.end_when_only_ignorers_are_left()
            if self._limits.spent and not self._calls:
                self._limits.end_spent()

    # The end of the process.

    def _condemn(self) -> None:
        if self.state in (WorkerState.STARTING, WorkerState.READY):
            self.state = lifecycle.advance(self.state, WorkerEvent.CONDEMNED)
            self._on_change(self)

    def _end_ignorers(self) -> None:
        self.cause = self.cause or faults.condemned_error(self.spec.plugin)
        self._ladder.terminate()

    def _fail_unless_killed(self, cause: CallError) -> None:
        if self._ladder.reached is not Rung.SIGKILL:
            self._fail(cause)

    def _fail(self, cause: CallError) -> None:
        self.failed = True
        self._say(cause.message.split("\n", 1)[0], level="error")
        self.kill(cause)

    def _violated(self, violation: Violation, problem: str) -> None:
        self._fail(faults.violation_error(self.spec.plugin, violation, f"{problem} ({violation})"))

    def _never_ready(self) -> None:
        words = self._log.last_words(self.worker_id)
        self._fail(faults.never_ready_error(self.spec.plugin, self._settings.start_timeout_s, words))

    def _on_channel_fault(self, violation: Violation, problem: str) -> None:
        if violation in (Violation.STDIN_CLOSED, Violation.STDOUT_CLOSED):
            if self._exit.over:
                self._bury_when_drained()
            elif "pipe" not in self._timers:
                self._timers.after("pipe", self._settings.pipe_grace_s, self._violated, violation, problem)
        else:
            self._violated(violation, problem)

    def _on_first_exit(self) -> None:
        # The kernel ends the other one by itself within milliseconds; should it not, it is made to.
        self._timers.after("rest", self._settings.pipe_grace_s, self._ladder.kill)

    def _on_exit(self) -> None:
        self._ladder.stop()
        if self.dead.done():
            self._timers.forget_all()
            self._process.close()
            self._let_go()
            return
        self._timers.forget_all()
        # What the process said last may still be in its pipes, a result among it.
        self._timers.after("drain", self._settings.pipe_grace_s, self._bury)
        self._bury_when_drained()

    def _bury_when_drained(self) -> None:
        if self._exit.over and self._channel.ended and self._stderr.ended:
            self._bury()

    def _bury(self) -> None:
        if not self.dead.done():
            self._process.poll()
            description = self._process.exit_description
            self._settle(description)
            self._process.close()
            self._let_go()

    def _stuck(self) -> None:
        """A process that SIGKILL does not end hangs in the kernel. Its calls don't wait for it; the watch goes on."""
        if not self._exit.over:
            self._say(f"process {self._process_id} was killed and does not vanish", level="error")
            self._settle("killed, and still hanging in the kernel")

    def _settle(self, description: str) -> None:
        """Let go of everything but the process itself, and answer everybody who waits."""
        self._timers.forget_all()
        self._ladder.stop()
        mid_frame = self._channel.mid_frame
        self._plugin_requests.close()
        self._channel.stop()
        self._stderr.stop()
        self._stderr_lines.close()
        self._watch.stop()
        if self.state is not WorkerState.ENDING:
            self.failed = True
            self._say(f"ended by itself: {description}", level="warning")
        self.state = lifecycle.advance(self.state, WorkerEvent.EXITED)
        if self._calls or not self.opened.done() or self.failed:
            self._answer_all(description, mid_frame=mid_frame)
        self.dead.set_result(None)
        self._on_change(self)

    def _let_go(self) -> None:
        """Drop the parts, which hold this worker to tell it things: see `nobody`. Nothing comes any more."""
        del self._channel, self._stderr, self._stderr_lines, self._plugin_requests, self._cancelling
        del self._ladder, self._exit, self._timers, self._limits, self._watch, self._meter
        self._cancel = nobody  # of a call that comes too late, and fails before anybody can

    def _answer_all(self, description: str, *, mid_frame: bool) -> None:
        """Say what it died of, to each call and to who waits for its start."""
        ready = self.opened.done()
        words = self._log.last_words(self.worker_id)
        cause = self.cause or self._limits.cause_of_death()
        if cause is None:
            cause = faults.death_error(self.spec.plugin, description, words, ready=ready, mid_frame=mid_frame)
        self.cause = cause
        self._cancelling.lose_all(cause, self._ladder.reached or Rung.CANCEL_FRAME)
        if not ready:
            self.opened.set_result(cause if "stderr" in cause.details else faults.with_last_lines(cause, words))

    def _say_rung(self, message: str) -> None:
        if self._one_call and self.calls_served and not self._calls:
            return  # how each of them ends
        # An operator looks for calls that had to be ended by force, and not for workers that nobody needs any more.
        self._say(message, level="info" if self._calls else "debug")

    def _say(self, message: str, *, level: str = "info") -> None:
        self._log.write("sidecar", level, message, worker_id=self.worker_id)
