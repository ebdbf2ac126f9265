"""One attempt of a call under way in a worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fumehood_server.model.worker import CancelReason, InvocationResult, Used
from fumehood_server.workers.limits.meter import NO_COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin_requests import EgressUsage
    from fumehood_server.model.worker import Invocation
    from fumehood_server.workers.limits.exhaustion import Exhausted
    from fumehood_server.workers.limits.meter import Meter


class WorkerCall:
    """A handle on one attempt: what the executor waits for, and what the worker keeps of it."""

    __slots__ = (
        "_meter",
        "_on_cancel",
        "_when_done",
        "cancel_reason",
        "charged_ns",
        "counters_at_start",
        "cpu_ns_at_start",
        "done",
        "egress",
        "grace_timer",
        "invocation",
        "invocation_id",
        "limit",
        "output_bytes",
        "starts_at_byte",
        "updates",
    )

    def __init__(
        self,
        invocation_id: int,
        invocation: Invocation,
        done: asyncio.Future[InvocationResult],
        on_cancel: Callable[[WorkerCall, CancelReason], None],
    ) -> None:
        """`on_cancel` is called once at most, for a call that is not over."""
        self.invocation_id = invocation_id
        self.invocation = invocation
        self.done = done
        self._on_cancel = on_cancel
        self._when_done: Callable[[InvocationResult], None] | None = None
        self.cancel_reason: CancelReason | None = None
        self.grace_timer: asyncio.TimerHandle | None = None
        self.starts_at_byte = 0
        """Where its `Invoke` begins among all bytes sent to the worker."""
        self.updates = 0
        self.output_bytes = 0
        self.egress: EgressUsage | None = None
        """See `InvocationHandle`."""
        self.limit: Exhausted | None = None
        """The limit for which it is ended."""
        self.charged_ns = 0
        """Processor time that counts towards its limit."""
        self.cpu_ns_at_start = 0
        self.counters_at_start = NO_COUNTERS
        self._meter: Meter | None = None

    @property
    def ended(self) -> bool:
        """See `Attempt`."""
        return self.done.done()

    async def result(self) -> InvocationResult:
        """See `Attempt`."""
        return await asyncio.shield(self.done)

    async def end(self, reason: CancelReason) -> InvocationResult:
        """See `Attempt`."""
        self.cancel(reason)
        return await self.result()

    def measure(self, meter: Meter) -> None:
        """It is sent now, to a process that this meter measures."""
        self._meter = meter
        self.cpu_ns_at_start = meter.cpu_ns()
        self.counters_at_start = meter.told

    def used(self) -> Used | None:
        """What its process used since it was sent; see `InvocationHandle`."""
        meter = self._meter
        if meter is None:
            return None
        return Used((meter.cpu_ns() - self.cpu_ns_at_start) / 1e9, meter.peak_memory_bytes(), meter.source)

    def cancel(self, reason: CancelReason) -> None:
        """Ask for the call's end; see `InvocationHandle`."""
        if self.cancel_reason is None and not self.done.done():
            self.cancel_reason = reason
            self._on_cancel(self, reason)

    def when_done(self, callback: Callable[[InvocationResult], None]) -> None:
        """Be told of the end in the turn of the loop in which it comes; see `InvocationHandle`."""
        if self.done.done():
            callback(self.done.result())
        else:
            self._when_done = callback

    def resolve(self, result: InvocationResult) -> None:
        """Say how the call ended. The first word stands."""
        self.stop_timer()
        if not self.done.done():
            result = replace(result, used=self.used(), egress=self.egress)
            self.done.set_result(result)
            # Let go of: the call that waits holds this handle, and a circle of the two stays until it is looked for.
            when_done, self._when_done = self._when_done, None
            if when_done is not None:
                when_done(result)

    def fail(self, error: CallError) -> None:
        """Say that the call ended without a word of the plugin's that counts."""
        self.resolve(
            InvocationResult(content=(), details_json="", terminate=False, error=error, output_bytes=self.output_bytes)
        )

    def stop_timer(self) -> None:
        """Forget the grace."""
        if self.grace_timer is not None:
            self.grace_timer.cancel()
            self.grace_timer = None


class CallTable:
    """The attempts of one process."""

    __slots__ = ("last_id", "under_way")

    def __init__(self) -> None:
        """None yet."""
        self.under_way: dict[int, WorkerCall] = {}
        """Those without a result, by invocation id."""
        self.last_id = 0
        """The highest invocation id given away."""

    @property
    def untouched(self) -> bool:
        """Whether no call was ever sent to the process."""
        return self.last_id == 0

    @property
    def unanswered(self) -> tuple[asyncio.Future[InvocationResult], ...]:
        """What the calls under way resolve."""
        return tuple(call.done for call in self.under_way.values() if not call.done.done())

    def cancel_all(self, reason: CancelReason) -> None:
        """Cancel every call that is under way."""
        for call in tuple(self.under_way.values()):
            call.cancel(reason)
