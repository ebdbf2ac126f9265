"""One attempt of a call in a worker: sent, waited for, and ended early if it must be."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from fumehood_server.model.tool import safe_to_repeat
from fumehood_server.model.worker import CancelReason, InvocationResult, Used
from fumehood_server.workers import faults
from fumehood_server.workers.faults import EscalationStep
from fumehood_server.workers.limits.exhaustion import exhausted_error
from fumehood_server.workers.limits.meter import NO_COUNTERS
from fumehood_server.workers.process.lifecycle import EndRequest
from fumehood_server.workers.wire import messages

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import EgressUsage
    from fumehood_server.model.worker import Invocation
    from fumehood_server.workers.limits.exhaustion import Exhausted
    from fumehood_server.workers.limits.meter import Meter
    from fumehood_server.workers.process.lifecycle import Lifecycle
    from fumehood_server.workers.process.value_collector import ValueCollector
    from fumehood_server.workers.settings import WorkerSettings
    from fumehood_server.workers.wire.pipes import PipeWriter


class AttemptTable:
    """The attempts of one process."""

    __slots__ = ("last_id", "lingering", "served", "under_way", "watched")

    def __init__(self) -> None:
        """None yet."""
        self.under_way: dict[int, WorkerAttempt] = {}
        """Those whose result frame has not come, by invocation id."""
        self.last_id = 0
        """The highest invocation id that was sent."""
        self.served = 0
        """Result frames so far."""
        self.lingering = False
        """Whether one that ignored its cancellation is waited for while others finish."""
        self.watched = False
        """Whether the worker is looked at for their sake, which goes on for a moment after the last of them."""

    @property
    def untouched(self) -> bool:
        """Whether no call was ever sent to the process."""
        return self.last_id == 0

    @property
    def unanswered(self) -> tuple[WorkerAttempt, ...]:
        """Those that somebody waits for."""
        return tuple(attempt for attempt in self.under_way.values() if not attempt.ended)


class PendingRequests(Protocol):
    """What attempts have requested of the sidecar (`requests.RequestRouter`)."""

    def cancel(self, invocation_id: int) -> None:
        """Give up what an attempt has requested, and refuse what it requests from now on."""


class Incoming(Protocol):
    """What comes from the process (`worker_output.WorkerOutput`)."""

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun that is not whole."""

    def hold(self, *, held: bool) -> None:
        """Take no more frames until it is let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """What the attempts of one process share."""

    spec: WorkerSpec
    settings: WorkerSettings
    life: Lifecycle
    table: AttemptTable
    writer: PipeWriter
    output: Incoming
    requests: PendingRequests
    meter: Meter


class WorkerAttempt:
    """An attempt (`model.worker.Attempt`). It ends once, whoever ends it."""

    __slots__ = (
        "_context",
        "_ended",
        "_result",
        "cancel_reason",
        "charged_ns",
        "counters_at_start",
        "cpu_ns_at_start",
        "egress",
        "invocation",
        "invocation_id",
        "limit",
        "output_bytes",
        "starts_at_byte",
        "updates",
        "values",
    )

    def __init__(self, context: AttemptContext, invocation_id: int, invocation: Invocation) -> None:
        """One that is not sent yet."""
        self._context = context
        self._ended = asyncio.Event()
        self._result: InvocationResult | None = None
        self.invocation_id = invocation_id
        self.invocation = invocation
        self.cancel_reason: CancelReason | None = None
        self.starts_at_byte = -1
        """Where its `Invoke` begins among all bytes for the worker. -1: it was not sent."""
        self.updates = 0
        self.values: ValueCollector | None = None
        """What it says it took from outside. None: nothing yet."""
        self.output_bytes = 0
        self.egress: EgressUsage | None = None
        """What its requests have sent to hosts and received from them so far. None: it has made none."""
        self.limit: Exhausted | None = None
        """The limit for which it is ended."""
        self.charged_ns = 0
        """Processor time that counts towards its limit."""
        self.cpu_ns_at_start = 0
        self.counters_at_start = NO_COUNTERS

    @property
    def ended(self) -> bool:
        """See `Attempt`."""
        return self._result is not None

    def hold_updates(self, held: bool, /) -> None:
        """See `Attempt`."""
        if not self.ended and self.cancel_reason is None:
            self._context.output.hold(held=held)

    async def result(self) -> InvocationResult:
        """See `Attempt`."""
        await self._ended.wait()
        if self._result is None:
            raise AssertionError("it has ended")
        return self._result

    async def end(self, reason: CancelReason) -> InvocationResult:
        """Send `Cancel`, wait for the result within the grace, then have the process ended; see `Attempt`.

        Whoever asks first gives the reason; the others wait with it. A wait that is cancelled ends the grace.
        """
        if not self.ended and self.cancel_reason is None:
            self.cancel_reason = reason
            context = self._context
            context.output.hold(held=False)  # its result may come behind what it was held with
            grace_s = context.settings.cancel_grace_of(context.spec.isolation)
            context.requests.cancel(self.invocation_id)
            context.writer.send(messages.cancel(self.invocation_id, reason, grace_s))
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace_s):
                        await self._ended.wait()
            finally:
                if not self.ended:
                    self._be_ignored()
        return await self.result()

    async def end_for_limit(self, limit: Exhausted) -> None:
        """End it because it has reached a limit, unless it is being ended already."""
        if self.cancel_reason is None:
            self.limit = limit
            await self.end(CancelReason.LIMIT)

    def send(self) -> None:
        """Write the `Invoke` frame, or fail where that can't be."""
        context = self._context
        plugin, settings, table, meter = context.spec.plugin, context.settings, context.table, context.meter
        try:
            frame = messages.invoke(self.invocation_id, self.invocation)
        except ValueError as error:
            # Text that is not Unicode, such as half a surrogate pair, has no place in a protobuf string.
            self.fail(faults.unsendable_error(error))
            return
        if len(frame) > settings.max_frame_bytes:
            self.fail(faults.too_large_error(plugin, len(frame), settings.max_frame_bytes))
        elif context.writer.unsent_bytes > settings.max_unsent_bytes:
            self.fail(faults.unsent_error(plugin, context.writer.unsent_bytes))
        else:
            self.starts_at_byte = context.writer.queued_bytes
            self.cpu_ns_at_start = meter.cpu_ns()
            self.counters_at_start = meter.told
            table.last_id = self.invocation_id
            table.under_way[self.invocation_id] = self
            if not table.watched:
                table.watched = True
                context.life.notify()
            context.writer.send(frame)

    def resolve(self, result: InvocationResult) -> None:
        """Say how it ended, and what the process used meanwhile. The first word stands."""
        if self._result is None:
            meter = self._context.meter
            if self.starts_at_byte >= 0:
                used = Used((meter.cpu_ns() - self.cpu_ns_at_start) / 1e9, meter.peak_memory_bytes(), meter.source)
                result = replace(
                    result, used=used, egress=self.egress, values=None if self.values is None else self.values.taken()
                )
            if result.error is not None and self.egress is not None:
                result = replace(result, error=faults.with_refused_hosts(result.error, self.egress.refused_hosts))
            self._result = result
            self._ended.set()
            self._context.output.hold(held=False)

    def fail(self, error: CallError) -> None:
        """Say that it ended without a word of the plugin's that counts."""
        self.resolve(InvocationResult((), "", terminate=False, error=error, output_bytes=self.output_bytes))

    def cancelled_error(self, step: EscalationStep, *, tool_finished: bool = False) -> CallError:
        """What it ends with that was cancelled; `step` is what ended it."""
        spec = self._context.spec
        error = None if self.limit is None else exhausted_error(spec.plugin, self.limit)
        reason = self.cancel_reason or CancelReason.CALLER
        made = faults.cancelled_error(
            spec.plugin, spec.policy.level, reason, step, tool_finished=tool_finished, error=error
        )
        closed = self._context.life.closed_pipe
        if closed is not None and step is not EscalationStep.CANCEL_FRAME:
            made = replace(made, details={**made.details, "violation": closed.violation.value})
        return faults.in_mid_frame(made) if self._context.output.mid_frame else made

    def lose(self, cause: CallError, step: EscalationStep) -> None:
        """Its process is gone, by `cause`; by `step` if that was for its own sake."""
        if self.cancel_reason is not None:
            self.fail(self.cancelled_error(step))
        else:
            dispatched = 0 <= self.starts_at_byte < self._context.writer.written_bytes
            self.fail(faults.lost_call_error(cause, self._context.spec.policy.level, dispatched=dispatched))

    def _be_ignored(self) -> None:
        """The grace is over: the process ends, as soon as others have finished that can't be repeated or need not."""
        context, life = self._context, self._context.life
        name = self.invocation.call_id
        others = any(attempt.cancel_reason is None for attempt in context.table.under_way.values())
        if others and safe_to_repeat(context.spec.policy.level):
            linger_s = context.settings.linger_s
            life.say(f"call {name} ignored its cancellation; other calls may go on for {linger_s:g} s")
            self.fail(self.cancelled_error(EscalationStep.CONDEMNED))
            context.table.lingering = True
            life.request(EndRequest.STOP_ADMITTING)
        else:
            life.say(f"call {name} ignored its cancellation")
            life.request(EndRequest.TERMINATE, faults.cancellation_ignored_error(context.spec.plugin))
