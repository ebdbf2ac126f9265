"""Enforces the limits of a worker and its calls: periodic checks, and the end of who reaches one.

Looked for is what the kernel does not end by itself: processor time of calls, memory and processes of a tree that no
cgroup bounds, and processor time that is used between calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from typing import TYPE_CHECKING

from fumehood_server.workers.limits import attribution, process_tree
from fumehood_server.workers.limits.exhaustion import Exhausted, Limit, exhausted_error
from fumehood_server.workers.limits.meter import NO_COUNTERS
from fumehood_server.workers.process.lifecycle import EndRequest

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.limits.meter import Meter
    from fumehood_server.workers.process.attempt import AttemptTable, WorkerAttempt
    from fumehood_server.workers.process.lifecycle import Lifecycle

INTERVAL_S = process_tree.INTERVAL_S
"""Between two looks at a worker that has calls."""
LONGEST_INTERVAL_S = 10.0
"""Between two looks at a worker that rests. What begins after a rest is found that much later."""
IDLE_CPU_S = 5.0
"""Processor time that a worker may use from one call to the next; half of what one call may, where that is less.
Tidying up takes milliseconds, and a thread that wakes up now and then far less until an idle worker is ended anyway."""
_BUSY_SHARE = 0.1
"""Who has used this share of the time since the last look is looked at again soon."""
_ZOMBIES_SHARE = 4
"""One in so many of the processes that it may have, dead and never waited for, has a worker replaced: they count for
the kernel, and the next call would have fewer."""
_NS = 1_000_000_000
_LEAVES_A_TRACE = frozenset({Limit.MEMORY, Limit.PROCESSES, Limit.OPEN_FILES, Limit.SCRATCH})
"""Limits of the process and not of the call alone."""
_TOOLS_UNKNOWN = "definition_unknown"
"""The MCP adapter's reason for a call that it refuses, since its server may have changed the tool. A new process lists
the tools anew, or doesn't start."""
_TOOL_CHANGED = "definition_changed"
"""Its reason where the server has changed the tool. What a new process lists is pinned, or it doesn't start."""


class LimitEnforcement:
    """One worker's: the limits of the whole process, and each call's processor time.

    Processor time of a process with one call is that call's. Where several run at once nobody can tell whose it is, so
    each is charged an equal share of each interval: calls that share a process share its time.
    """

    __slots__ = (
        "_ended_pids",
        "_first_idle_ns",
        "_idle_interval_s",
        "_last_ns",
        "_life",
        "_looked_at",
        "_meter",
        "_own_pids",
        "_process",
        "_rested",
        "_spec",
        "_table",
        "_watching",
        "filled",
    )

    def __init__(
        self, process: SandboxedProcess, spec: WorkerSpec, meter: Meter, table: AttemptTable, life: Lifecycle
    ) -> None:
        """`meter` measures `process`, which runs."""
        self._process = process
        self._spec = spec
        self._meter = meter
        self._table = table
        self._life = life
        self._looked_at = 0.0
        self._own_pids: frozenset[int] = frozenset()
        """The processes that it had before its first call."""
        self._ended_pids: frozenset[int] = frozenset()
        """Those that were ended as left behind and nobody has reaped yet."""
        self._watching = False
        """Whether it is looked at for the sake of its calls."""
        self._last_ns = 0
        """Processor time of the worker at the last look."""
        self._first_idle_ns = 0
        """The same when its last call was over."""
        self._idle_interval_s: float | None = None
        """Until the next look at a worker without calls. None: it had none yet, or is looked at no more."""
        self._rested = False
        """Whether it had no calls since the last look at its tree."""
        self.filled = False
        """Whether it has reached a limit by what may still be there: it is killed when it has no calls any more."""

    def before_first_call(self) -> None:
        """Note which processes are the worker's own."""
        self._own_pids = frozenset(self._process.pids())

    @property
    def due_at(self) -> float:
        """When the next look is due, on the event loop's clock. Infinite where nothing is to be looked at."""
        if self._table.watched:
            return self._looked_at + INTERVAL_S if self._watching else 0.0
        return math.inf if self._idle_interval_s is None else self._looked_at + self._idle_interval_s

    def look(self, now: float) -> list[tuple[WorkerAttempt, Exhausted]]:
        """Look at the worker, and ask for its end if it must be. Returns calls that must end for a limit."""
        self._looked_at = now
        overdue: list[tuple[WorkerAttempt, Exhausted]] = []
        if not self._table.watched:
            self._look_while_idle()
        elif not self._watching:
            self._begin_to_watch()
        elif self._table.under_way:
            overdue = self._look_at_time()
            self._look_at_kills()
            if not (self._meter.bounds_memory and self._meter.bounds_processes and self._meter.counts_time):
                self._look_at_tree()
        else:
            self._begin_to_rest()
        return overdue

    def _begin_to_watch(self) -> None:
        """Calls have begun in a worker that had none."""
        self._watching = True
        self._rested = self._idle_interval_s is not None
        oldest = next(iter(self._table.under_way.values()), None)
        self._last_ns = self._meter.cpu_ns() if oldest is None else oldest.cpu_ns_at_start

    def _begin_to_rest(self) -> None:
        """The worker has no calls any more."""
        self._watching = self._table.watched = False
        self._kill_what_was_left()
        self._meter.counters()  # what the last calls have counted is not the next one's
        self._idle_interval_s = INTERVAL_S
        self._first_idle_ns = self._last_ns = self._idle_cpu_ns()

    def _look_while_idle(self) -> None:
        """Look ever more seldom while it rests."""
        self._kill_what_was_left()
        now_ns = self._idle_cpu_ns()
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        used_s = (now_ns - self._first_idle_ns) / _NS
        if used_s > min(IDLE_CPU_S, self._spec.cpu_s / 2):
            self._idle_interval_s = None
            self._end_what_was_left_running(used_s)
            return
        interval_s = self._idle_interval_s or INTERVAL_S
        rests = passed_ns <= interval_s * _NS * _BUSY_SHARE
        self._idle_interval_s = min(interval_s * 2, LONGEST_INTERVAL_S) if rests else INTERVAL_S
        self._look_at_total(now_ns)

    def _kill_what_was_left(self) -> None:
        """End the processes that calls have left behind: none is under way, so they are nobody's.

        Threads can't be ended from outside: one that is busy has the worker replaced, see `_end_what_was_left_running`.

        Where the operator says that a server keeps what it has between calls (`one_process`), that is its processes
        as well, such as a browser's.
        """
        if self._spec.all_levels:
            return
        left = frozenset(self._process.pids()) - self._own_pids
        found, unreaped, self._ended_pids = left - self._ended_pids, left & self._ended_pids, left
        for pid in found:
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(pid)
                try:
                    # Its number may have been given to another process before the pidfd held it.
                    if pid in self._process.pids():
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                finally:
                    os.close(pidfd)
        if found:
            self._life.say(f"{len(found)} processes that its calls left running are ended", level="warning")
        zombies = len(unreaped | (process_tree.children(self._own_pids) - left - self._own_pids))
        if zombies > self._spec.policy.limits.processes // _ZOMBIES_SHARE:
            self._replace_after_its_calls(f"has {zombies} dead processes that it has not waited for")

    def _idle_cpu_ns(self) -> int:
        if not self._meter.counts_time:
            self._meter.look_at(self._process.pids())  # what was left behind has clocks of its own
        return self._meter.cpu_ns()

    def _end_what_was_left_running(self, used_s: float) -> None:
        """What a call left behind goes on without one: nobody's limit ends it, and the next call would pay for it."""
        message = f"used {used_s:.1f} s of processor time since its last call ended: it is replaced"
        self._life.say(message, level="warning")
        self._life.request(EndRequest.SHUTDOWN)

    def _look_at_time(self) -> list[tuple[WorkerAttempt, Exhausted]]:
        now_ns = self._meter.cpu_ns()
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        calls = tuple(self._table.under_way.values())
        share_ns = passed_ns // len(calls)
        overdue = []
        for attempt in calls:
            attempt.charged_ns = min(attempt.charged_ns + share_ns, now_ns - attempt.cpu_ns_at_start)
            if attempt.charged_ns >= self._spec.cpu_s * _NS and attempt.cancel_reason is None:
                usage_s = round(attempt.charged_ns / _NS, 3)
                limit = Exhausted(limit=Limit.CPU, value=self._spec.cpu_s, usage=usage_s, shared=len(calls) > 1)
                overdue.append((attempt, limit))
        self._look_at_total(now_ns)
        return overdue

    def _look_at_total(self, now_ns: int) -> None:
        """Its process comes near its own limit of processor time (RLIMIT_CPU): the next calls get another one."""
        if now_ns >= self._spec.cpu_s * _NS:
            self._replace_after_its_calls("used as much processor time as one call may")

    def _replace_after_its_calls(self, why: str) -> None:
        if self._life.requested is EndRequest.NONE:
            self._life.say(f"{why}: it serves its calls and is replaced")
            self._life.request(EndRequest.STOP_ADMITTING)

    def _replace_for_changed_tools(self) -> None:
        """Until its time has come it goes on with what it has not changed, and refuses the rest."""
        if not self._life.tools_changed and asyncio.get_running_loop().time() >= self._life.kept_until:
            self._life.tools_changed = True
            self._replace_after_its_calls("its server has changed tools since they were pinned")

    def _look_at_kills(self) -> None:
        """The kernel kills one process of a tree that is full, and the others may wait for it for ever."""
        oldest = next(iter(self._table.under_way.values()))
        if self._meter.counters().oom_kills > oldest.counters_at_start.oom_kills:
            self._reach(Limit.MEMORY, self._spec.policy.limits.memory_bytes, self._meter.peak_memory_bytes())

    def _look_at_tree(self) -> None:
        limits, meter = self._spec.policy.limits, self._meter
        tree = process_tree.look(self._process.pids(), limits.memory_bytes)
        before_ns = meter.cpu_ns()
        meter.look_at(tree.pids, tree.memory_bytes)
        if self._rested and not meter.counts_time:
            # Who is found now may have run while nobody called: what he has used so far is nobody's.
            found_ns = meter.cpu_ns() - before_ns
            self._last_ns += found_ns
            for attempt in self._table.under_way.values():
                attempt.cpu_ns_at_start += found_ns
        self._rested = False
        if not meter.bounds_memory and tree.memory_bytes > limits.memory_bytes:
            self._reach(Limit.MEMORY, limits.memory_bytes, tree.memory_bytes)
        elif not meter.bounds_processes and tree.tasks > limits.processes:
            self._reach(Limit.PROCESSES, limits.processes, tree.tasks)

    def _reach(self, limit: Limit, value: float, usage: float) -> None:
        """A limit of the whole process was reached, which nothing but its end enforces."""
        shared = len(self._table.under_way) > 1
        exhausted = Exhausted(limit=limit, value=value, usage=usage, shared=shared)
        self._life.fail(exhausted_error(self._spec.plugin, exhausted))

    def log_rate_exceeded(self, seen_bytes: int) -> None:
        """It wrote so much to its log within a second."""
        self._reach(Limit.LOG_RATE, self._spec.log_bytes_per_second, seen_bytes)

    def attribute_failure(self, failure: CallError, attempt: WorkerAttempt) -> CallError:
        """The error of a call that the plugin says has failed: of a limit, if one was reached meanwhile."""
        shared = bool(self._table.under_way)
        error = attribution.of_failure(
            failure, self._spec, self._process, self._meter, attempt.counters_at_start, shared=shared
        )
        if error.details.get("limit") in _LEAVES_A_TRACE and error is not failure:
            # What fills the process may stay there: the next calls get another one, and this one ends without a word.
            self.filled = True
            self._life.request(EndRequest.STOP_ADMITTING)
        elif failure.details.get("reason") == _TOOLS_UNKNOWN:
            self._replace_after_its_calls("its server has not listed its tools for long")
        elif failure.details.get("reason") == _TOOL_CHANGED:
            self._replace_for_changed_tools()
        return error

    def attribute_death(self) -> CallError | None:
        """The limit that ended the process, if one did. Its calls are still those under way."""
        oldest = next(iter(self._table.under_way.values()), None)
        before = oldest.counters_at_start if oldest is not None else NO_COUNTERS
        shared = len(self._table.under_way) > 1
        found = attribution.of_death(self._spec, self._meter, before, self._process.exit_signal, shared=shared)
        return None if found is None else exhausted_error(self._spec.plugin, found)
