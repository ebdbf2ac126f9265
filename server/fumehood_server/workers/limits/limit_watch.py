"""Watches a worker for what the kernel does not end by itself: processor time of its calls, and its tree's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fumehood_server.workers.limits import watchdog
from fumehood_server.workers.limits.exhaustion import Exhausted, Limit
from fumehood_server.workers.limits.idle_watch import IDLE_ALLOWANCE_S, IdleWatch
from fumehood_server.workers.limits.watchdog import INTERVAL_S
from fumehood_server.workers.process.nobody import nobody

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.limits.meter import Meter
    from fumehood_server.workers.process.attempt import WorkerCall

_NS = 1_000_000_000


class LimitWatch:
    """One timer while a worker has calls; between calls it is an `IdleWatch`'s.

    Processor time of a process with one call is that call's. Where several run at once nobody can tell whose it is, so
    each is charged an equal share of each interval: calls that share a process share its time.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: SandboxedProcess,
        meter: Meter,
        calls: Mapping[int, WorkerCall],
        spec: WorkerSpec,
        *,
        end_call: Callable[[WorkerCall, Exhausted], None],
        end_worker: Callable[[Exhausted], None],
        on_spent: Callable[[], None],
        on_left_running: Callable[[float], None],
    ) -> None:
        """`calls` are those under way.

        `on_spent` is called when the process has used so much that it had better be replaced before its own limit
        (RLIMIT_CPU) ends it; `on_left_running` when it has used more than it may without a call, with the seconds.
        """
        self._loop = loop
        self._process = process
        self._meter = meter
        self._calls = calls
        self._spec = spec
        self._end_call = end_call
        self._end_worker = end_worker
        self._on_spent = on_spent
        self._timer: asyncio.TimerHandle | None = None
        self._last_ns = 0
        self._spent = False
        self._rested = False
        """Whether it was idle since the last look at its tree."""
        allowance_s = min(IDLE_ALLOWANCE_S, spec.cpu_s / 2)
        self._idle = IdleWatch(loop, process, meter, allowance_s, on_look=self._look_at_total, on_used=on_left_running)
        self.armed = False
        """Whether it looks at the worker for the sake of calls."""

    def begin(self, now_ns: int) -> None:
        """A call begins while it isn't armed. `now_ns` is the worker's processor time."""
        self.armed = True
        self._rested = self._idle.stop()
        self._last_ns = now_ns
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)

    def stop(self) -> None:
        """Look no more. Must come before the process is closed. Idempotent."""
        self.armed = True  # so that nobody begins anew
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle.close()
        self._end_worker = self._on_spent = nobody

    def _tick(self) -> None:
        self._timer = None
        if not self._calls:
            self.armed = False
            self._meter.counters()  # what the last calls have counted is not the next one's
            self._idle.begin()
            return
        # First, since what ends the worker stops this watch.
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)
        self._look_at_time()
        self._look_at_kills()
        if not (self._meter.bounds_memory and self._meter.bounds_processes and self._meter.counts_time):
            self._look_at_tree()

    def _look_at_time(self) -> None:
        now_ns = self._meter.cpu_ns()
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        share_ns = passed_ns // len(self._calls)
        limit_ns = self._spec.cpu_s * _NS
        for call in tuple(self._calls.values()):
            call.charged_ns = min(call.charged_ns + share_ns, now_ns - call.cpu_ns_at_start)
            if call.charged_ns >= limit_ns and call.cancel_reason is None:
                usage_s = round(call.charged_ns / _NS, 3)
                self._end_call(
                    call,
                    Exhausted(limit=Limit.CPU, value=self._spec.cpu_s, usage=usage_s, shared=len(self._calls) > 1),
                )
        self._look_at_total(now_ns)

    def _look_at_total(self, now_ns: int) -> None:
        if now_ns >= self._spec.cpu_s * _NS and not self._spent:
            self._spent = True
            self._on_spent()

    def _look_at_kills(self) -> None:
        """The kernel kills one process of a tree that is full, and the others may wait for it for ever."""
        oldest = next(iter(self._calls.values()), None)
        if oldest is not None and self._meter.counters().oom_kills > oldest.counters_at_start.oom_kills:
            value, usage = self._spec.policy.limits.memory_bytes, self._meter.peak_memory_bytes()
            self._end_worker(Exhausted(limit=Limit.MEMORY, value=value, usage=usage, shared=len(self._calls) > 1))

    def _look_at_tree(self) -> None:
        limits = self._spec.policy.limits
        tree = watchdog.look(self._process.pids(), limits.memory_bytes)
        before_ns = self._meter.cpu_ns()
        self._meter.look_at(tree.pids, tree.memory_bytes)
        if self._rested and not self._meter.counts_time:
            # Who is found now may have run while nobody called: what he has used so far is nobody's.
            found_ns = self._meter.cpu_ns() - before_ns
            self._last_ns += found_ns
            for call in self._calls.values():
                call.cpu_ns_at_start += found_ns
        self._rested = False
        shared = len(self._calls) > 1
        if not self._meter.bounds_memory and tree.memory_bytes > limits.memory_bytes:
            self._end_worker(
                Exhausted(limit=Limit.MEMORY, value=limits.memory_bytes, usage=tree.memory_bytes, shared=shared)
            )
        elif not self._meter.bounds_processes and tree.tasks > limits.processes:
            self._end_worker(Exhausted(limit=Limit.PROCESSES, value=limits.processes, usage=tree.tasks, shared=shared))
