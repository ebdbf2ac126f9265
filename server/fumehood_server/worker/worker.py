"""One sandboxed process that runs calls: from `Hello` to the last result, and what becomes of its calls if it fails."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood.v1 import plugin_pb2
from fumehood_sandbox import Layer, Level

from fumehood_server.model.call import CallError
from fumehood_server.model.taxonomy import Code
from fumehood_server.model.worker import CancelReason, InvocationResult, WorkerInfo, WorkerState
from fumehood_server.worker import evidence, faults, lifecycle, messages, watchdog
from fumehood_server.worker.attention import Attention
from fumehood_server.worker.call import CallTable, WorkerCall
from fumehood_server.worker.channel import Channel
from fumehood_server.worker.ending import Ladder
from fumehood_server.worker.exhaustion import Exhausted, Limit, exhausted_error
from fumehood_server.worker.exits import ExitWatch
from fumehood_server.worker.faults import Rung, Violation
from fumehood_server.worker.host_calls import HostCallRouter
from fumehood_server.worker.incoming import Incoming
from fumehood_server.worker.lifecycle import WorkerEvent
from fumehood_server.worker.limit_watch import LimitWatch
from fumehood_server.worker.meter import NO_COUNTERS, Meter
from fumehood_server.worker.pipes import PipeReader
from fumehood_server.worker.rate import Allowance, LogRate
from fumehood_server.worker.scrubbing import scrub_result
from fumehood_server.worker.stderr import LINES_BURST, LINES_PER_SECOND, StderrLines

if TYPE_CHECKING:
    from fumehood_sandbox import Receipt, SandboxedProcess

    from fumehood_server.model.host_calls import HostCalls
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.worker import Invocation
    from fumehood_server.worker.logs import PluginLog
    from fumehood_server.worker.settings import WorkerSettings

_LEAVES_A_TRACE = frozenset({Limit.MEMORY, Limit.PROCESSES, Limit.OPEN_FILES, Limit.SCRATCH})
"""Limits of the process and not of the call alone."""
_ONE_CALL = Layer("isolation", "call: a sandbox of its own, made before and ended after")


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
        host_calls: HostCalls | None = None,
        one_call: bool = False,
        is_ready: bool = False,
    ) -> None:
        """`on_change` is called when the worker takes no more calls, and again when it is dead.

        `one_call`: it serves one call and is killed with the result. `is_ready`: it needs no `Hello` and sends no
        `Ready`, as a process that was forked from one that did. `host_calls` answers what its calls ask of the
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
        self._table = CallTable()
        self._calls = self._table.under_way
        self.cause: CallError | None = None
        """What it died of. None while it lives and is well."""
        self._polite = False
        self._spent = False
        """Whether it is to end once its calls have, for what its process has used."""
        self._filled = False
        """Whether it has reached a limit by what may still be there."""
        self._meter = Meter(process)
        receipt = _with_watchdog(process.receipt, self._meter)
        self.receipt: Receipt = _for_one_call(receipt) if one_call else receipt
        """What holds the process."""
        self._limits = LimitWatch(
            loop,
            process,
            self._meter,
            self._calls,
            spec,
            end_call=self._end_for_limit,
            end_worker=self._over_limit,
            on_spent=self._on_spent,
            on_left_running=self._on_left_running,
        )
        self._timers: dict[str, asyncio.TimerHandle] = {}
        log_allowance = Allowance(burst=LINES_BURST, per_second=LINES_PER_SECOND, clock=loop.time)
        self._ladder = Ladder(
            loop,
            process,
            terminate_grace_s=settings.terminate_grace_of(spec.isolation),
            kill_confirm_s=settings.kill_confirm_s,
            say=self._say_rung,
            on_stuck=self._stuck,
        )
        log_rate = LogRate(limit_bytes=spec.log_bytes_per_second, clock=loop.time, on_over=self._logged_too_much)
        self._stderr_lines = StderrLines(log, worker_id, log_allowance, log_rate)
        self._stderr = PipeReader(loop, process.stderr, self._stderr_lines.feed, self._bury_when_drained)
        self._host_calls = HostCallRouter(spec, host_calls, log.redactor, on_violation=self._violated)
        incoming = Incoming(
            worker_id,
            self._table,
            log=log,
            log_allowance=log_allowance,
            log_rate=log_rate,
            settings=settings,
            clock=loop.time,
            is_open=self.opened.done,
            on_ready=self._on_ready,
            on_result=self._on_result,
            on_violation=self._violated,
            host_calls=self._host_calls,
        )
        self._channel = Channel(
            loop,
            stdin=process.stdin,
            stdout=process.stdout,
            settings=settings,
            on_frame=incoming.frame,
            on_fault=self._on_channel_fault,
        )
        self._attention = Attention(self._channel.look)
        relay, process.relay = process.relay, None  # whoever serves it closes it, once the loop has let go of it
        self._host_calls.open(self._channel, self._table, relay)
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
        self._table.last_id += 1
        call = WorkerCall(self._table.last_id, invocation, self._loop.create_future(), self._cancel)
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
            call.starts_at_byte = channel.queued_bytes
            if self._settings.measures:
                call.measure(self._meter)
                if not self._limits.armed:
                    self._limits.begin(call.cpu_ns_at_start)
            self._calls[call.invocation_id] = call
            # A lone call goes out at once; beside others it is written with theirs.
            alone = len(self._calls) == 1
            channel.send(frame, now=alone)
            if self._attention.is_due(alone=alone):
                self._loop.call_soon(self._attention.pay)
        return call

    @property
    def untouched(self) -> bool:
        """Whether no call was ever sent to it."""
        return self._table.last_id == 0

    def cancel_calls(self, reason: CancelReason) -> None:
        """Cancel every call that is under way."""
        for call in tuple(self._calls.values()):
            call.cancel(reason)

    @property
    def unanswered(self) -> tuple[asyncio.Future[InvocationResult], ...]:
        """What the calls under way resolve."""
        return tuple(call.done for call in self._calls.values() if not call.done.done())

    def finish(self) -> None:
        """Take no new calls, and ask the process to exit; make it when it does not. Idempotent."""
        self._condemn()
        if self.state is WorkerState.ENDING and not self._polite and self._ladder.reached is None:
            self._polite = True
            self._channel.send(messages.shutdown(self._settings.shutdown_grace_s))
            self._after("shutdown", self._settings.shutdown_grace_s, self._ladder.terminate)

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
            self._forget("start")
            self.greeting = ready
            if 0 < ready.max_concurrent_calls < self.max_concurrent_calls:
                self.max_concurrent_calls = ready.max_concurrent_calls
            self._become_ready()

    def _begin(self, start_timeout_s: float, *, is_ready: bool) -> None:
        if is_ready:
            self._become_ready()
        else:
            self._after("start", start_timeout_s, self._never_ready)
            self._channel.send(messages.hello(self.spec, max_frame_bytes=self._settings.max_frame_bytes))

    def _become_ready(self) -> None:
        self.state = lifecycle.advance(self.state, WorkerEvent.BECAME_READY)
        self.opened.set_result(None)

    def _on_result(self, call: WorkerCall, message: plugin_pb2.Result) -> None:
        self.calls_served += 1
        self._host_calls.end(call.invocation_id)
        if self._log.redactor.active:
            scrub_result(message, self._log.redactor)
        if call.cancel_reason is None:
            result = messages.result(message, output_bytes=call.output_bytes)
            if result.error is not None:
                result = replace(result, error=self._explained(result.error, call))
            self._end_after_its_call()
            call.resolve(result)
        else:
            self._end_after_its_call()
            finished = not message.HasField("error")
            call.fail(self._cancelled(call, Rung.CANCEL_FRAME, tool_finished=finished))
        if self.state is WorkerState.ENDING:
            self._end_when_only_ignorers_are_left()
            if self._spent and not self._calls:
                self._end_spent()

    def _end_after_its_call(self) -> None:
        """Where it has but one: kill it before the result is handed on, for nothing that it still does is anybody's."""
        if self._one_call:
            self.kill()

    # Limits.

    def _explained(self, failure: CallError, call: WorkerCall) -> CallError:
        """What made a call fail: a limit, if one was reached meanwhile."""
        error = evidence.of_failure(
            failure, self.spec, self._process, self._meter, call.counters_at_start, shared=bool(self._calls)
        )
        if error.details.get("limit") in _LEAVES_A_TRACE and error is not failure:
            # What fills the process may stay there: the next calls get another one, and this one ends without a word.
            self._spent = self._filled = True
            self._condemn()
        return error

    def _end_spent(self) -> None:
        if self._filled:
            self.kill()
        else:
            self.finish()

    def _end_for_limit(self, call: WorkerCall, exhausted: Exhausted) -> None:
        call.limit = exhausted
        call.cancel(CancelReason.LIMIT)

    def _over_limit(self, exhausted: Exhausted) -> None:
        """A limit of the whole process was reached, which nothing but its end enforces."""
        if self._ladder.reached is not Rung.SIGKILL:
            self._fail(exhausted_error(self.spec.plugin, exhausted))

    def _logged_too_much(self, seen_bytes: int) -> None:
        value, shared = self.spec.log_bytes_per_second, len(self._calls) > 1
        self._over_limit(Exhausted(limit=Limit.LOG_RATE, value=value, usage=seen_bytes, shared=shared))

    def _on_spent(self) -> None:
        """Its process comes near its own limit of processor time: the next calls get another one."""
        self._say("used as much processor time as one call may: it serves its calls and is replaced")
        self._spent = True
        self._condemn()
        if not self._calls:
            self._end_spent()

    def _on_left_running(self, used_s: float) -> None:
        """What a call left behind goes on without one: nobody's limit ends it, and the next call would pay for it."""
        self._say(f"used {used_s:.1f} s of processor time since its last call ended: it is replaced", level="warning")
        self.finish()

    # Calls that are to end.

    def _cancel(self, call: WorkerCall, reason: CancelReason) -> None:
        self._host_calls.cancel(call.invocation_id)
        grace_s = self._settings.cancel_grace_of(self.spec.isolation)
        self._channel.send(messages.cancel(call.invocation_id, reason, grace_s))
        call.grace_timer = self._loop.call_later(grace_s, self._ignored_cancel, call)

    def _ignored_cancel(self, call: WorkerCall) -> None:
        """The grace is over. Calls that can be repeated may finish beside the one that hangs; others end with it."""
        call.grace_timer = None
        name = call.invocation.call_id
        reason = call.cancel_reason
        others = any(each.cancel_reason is None for each in self._calls.values())
        self._condemn()
        if reason is not None and others and self.spec.policy.level in (Level.NONE, Level.READ):
            self._say(f"call {name} ignored its cancellation; other calls may go on for {self._settings.linger_s:g} s")
            call.fail(self._cancelled(call, Rung.CONDEMNED))
            if "linger" not in self._timers:
                self._after("linger", self._settings.linger_s, self._end_ignorers)
        else:
            self._say(f"call {name} ignored its cancellation")
            self._end_ignorers()

    def _end_ignorers(self) -> None:
        self.cause = self.cause or faults.condemned_error(self.spec.plugin)
        self._ladder.terminate()

    def _end_when_only_ignorers_are_left(self) -> None:
        if "linger" not in self._timers:
            return
        if not self._calls:
            self.finish()
        elif not self.unanswered:
            self._end_ignorers()

    def _cancelled(self, call: WorkerCall, rung: Rung, *, tool_finished: bool = False) -> CallError:
        plugin, level, reason = self.spec.plugin, self.spec.policy.level, call.cancel_reason
        error = None if call.limit is None else exhausted_error(plugin, call.limit)
        return faults.cancelled_error(
            plugin, level, reason or CancelReason.CALLER, rung, tool_finished=tool_finished, error=error
        )

    # The end of the process.

    def _condemn(self) -> None:
        if self.state in (WorkerState.STARTING, WorkerState.READY):
            self.state = lifecycle.advance(self.state, WorkerEvent.CONDEMNED)
            self._on_change(self)

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
                self._after("pipe", self._settings.pipe_grace_s, self._violated, violation, problem)
        else:
            self._violated(violation, problem)

    def _on_first_exit(self) -> None:
        # The kernel ends the other one by itself within milliseconds; should it not, it is made to.
        self._after("rest", self._settings.pipe_grace_s, self._ladder.kill)

    def _on_exit(self) -> None:
        self._ladder.stop()
        if self.dead.done():
            self._process.close()
            return
        self._forget(*self._timers)
        # What the process said last may still be in its pipes, a result among it.
        self._after("drain", self._settings.pipe_grace_s, self._bury)
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

    def _stuck(self) -> None:
        """A process that SIGKILL does not end hangs in the kernel. Its calls don't wait for it; the watch goes on."""
        if not self._exit.over:
            self._say(f"process {self._process_id} was killed and does not vanish", level="error")
            self._settle("killed, and still hanging in the kernel")

    def _settle(self, description: str) -> None:
        """Let go of everything but the process itself, and answer everybody who waits."""
        self._forget(*self._timers)
        self._ladder.stop()
        mid_frame = self._channel.mid_frame
        self._host_calls.close()
        self._channel.stop()
        self._stderr.stop()
        self._stderr_lines.close()
        self._limits.stop()
        if self.state is not WorkerState.ENDING:
            self.failed = True
            self._say(f"ended by itself: {description}", level="warning")
        self.state = lifecycle.advance(self.state, WorkerEvent.EXITED)
        if self._calls or not self.opened.done() or self.failed:
            self._answer_all(description, mid_frame=mid_frame)
        self.dead.set_result(None)
        self._on_change(self)

    def _answer_all(self, description: str, *, mid_frame: bool) -> None:
        """Say what it died of, to each call and to who waits for its start."""
        ready = self.opened.done()
        words = self._log.last_words(self.worker_id)
        cause = self.cause or self._exhausted()
        if cause is None:
            cause = faults.death_error(self.spec.plugin, description, words, ready=ready, mid_frame=mid_frame)
        self.cause = cause
        for call in self._calls.values():
            if call.cancel_reason is not None:
                call.fail(self._cancelled(call, self._ladder.reached or Rung.CANCEL_FRAME))
            else:
                dispatched = call.starts_at_byte < self._channel.written_bytes
                call.fail(faults.lost_call_error(cause, self.spec.policy.level, dispatched=dispatched))
        self._calls.clear()
        if not ready:
            self.opened.set_result(cause if "stderr" in cause.details else faults.with_last_lines(cause, words))

    def _exhausted(self) -> CallError | None:
        """The limit that ended the process, if one did."""
        oldest = next(iter(self._calls.values()), None)
        before = oldest.counters_at_start if oldest is not None else NO_COUNTERS
        shared = len(self._calls) > 1
        found = evidence.of_death(self.spec, self._meter, before, self._process.exit_signal, shared=shared)
        return None if found is None else exhausted_error(self.spec.plugin, found)

    def _after(self, name: str, delay_s: float, callback: Callable[..., None], *arguments: object) -> None:
        """Call back later, unless that is forgotten first."""
        self._timers[name] = self._loop.call_later(delay_s, callback, *arguments)

    def _forget(self, *names: str) -> None:
        for name in names:
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer.cancel()

    def _say_rung(self, message: str) -> None:
        if self._one_call and self.calls_served and not self._calls:
            return  # how each of them ends
        # An operator looks for calls that had to be ended by force, and not for workers that nobody needs any more.
        self._say(message, level="info" if self._calls else "debug")

    def _say(self, message: str, *, level: str = "info") -> None:
        self._log.write("sidecar", level, message, worker_id=self.worker_id)


def _for_one_call(receipt: Receipt) -> Receipt:
    """The receipt of a process that serves one call, which a forked one has already."""
    return receipt if receipt.one_call else replace(receipt, layers=(*receipt.layers, _ONE_CALL))


def _with_watchdog(receipt: Receipt, meter: Meter) -> Receipt:
    """The receipt, with the watchdog where it has something to watch."""
    if meter.bounds_memory and meter.bounds_processes:
        return receipt
    return replace(receipt, layers=(*receipt.layers, watchdog.LAYER))
