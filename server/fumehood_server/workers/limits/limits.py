"""What becomes of a worker and its calls when a limit is reached, whoever finds that out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fumehood_server.model.worker import CancelReason
from fumehood_server.workers.limits import attribution as evidence
from fumehood_server.workers.limits.exhaustion import Exhausted, Limit, exhausted_error
from fumehood_server.workers.limits.limit_watch import LimitWatch
from fumehood_server.workers.limits.meter import NO_COUNTERS, Meter

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.process.attempt import WorkerCall
    from fumehood_server.workers.process.ending import Ends

_LEAVES_A_TRACE = frozenset({Limit.MEMORY, Limit.PROCESSES, Limit.OPEN_FILES, Limit.SCRATCH})
"""Limits of the process and not of the call alone."""


class Limits:
    """One worker's: those of the whole process, and each call's processor time."""

    __slots__ = ("_calls", "_ends", "_filled", "_process", "_spec", "meter", "spent", "watch")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: SandboxedProcess,
        spec: WorkerSpec,
        calls: Mapping[int, WorkerCall],
        ends: Ends,
    ) -> None:
        """`process` runs. `calls` are those under way."""
        self._process = process
        self._spec = spec
        self._calls = calls
        self._ends = ends
        self._filled = False
        """Whether it has reached a limit by what may still be there."""
        self.spent = False
        """Whether it is to end once its calls have, for what its process has used."""
        self.meter = Meter(process)
        self.watch = LimitWatch(
            loop,
            process,
            self.meter,
            calls,
            spec,
            end_call=self._end_call,
            end_worker=self.reached,
            on_spent=self._on_spent,
            on_left_running=self._on_left_running,
        )

    def reached(self, exhausted: Exhausted) -> None:
        """A limit of the whole process was reached, which nothing but its end enforces."""
        self._ends.fail(exhausted_error(self._spec.plugin, exhausted))

    def logged_too_much(self, seen_bytes: int) -> None:
        """It wrote so much to its log within a second."""
        value, shared = self._spec.log_bytes_per_second, len(self._calls) > 1
        self.reached(Exhausted(limit=Limit.LOG_RATE, value=value, usage=seen_bytes, shared=shared))

    def explained(self, failure: CallError, call: WorkerCall) -> CallError:
        """What made a call fail, which is under way no more: a limit, if one was reached meanwhile."""
        error = evidence.of_failure(
            failure, self._spec, self._process, self.meter, call.counters_at_start, shared=bool(self._calls)
        )
        if error.details.get("limit") in _LEAVES_A_TRACE and error is not failure:
            # What fills the process may stay there: the next calls get another one, and this one ends without a word.
            self.spent = self._filled = True
            self._ends.condemn()
        return error

    def end_spent(self) -> None:
        """End a worker that is `spent` and has no calls any more."""
        if self._filled:
            self._ends.kill()
        else:
            self._ends.finish()

    def cause_of_death(self) -> CallError | None:
        """The limit that ended the process, if one did. Its calls are still those under way."""
        oldest = next(iter(self._calls.values()), None)
        before = oldest.counters_at_start if oldest is not None else NO_COUNTERS
        shared = len(self._calls) > 1
        found = evidence.of_death(self._spec, self.meter, before, self._process.exit_signal, shared=shared)
        return None if found is None else exhausted_error(self._spec.plugin, found)

    @staticmethod
    def _end_call(call: WorkerCall, exhausted: Exhausted) -> None:
        call.limit = exhausted
        call.cancel(CancelReason.LIMIT)

    def _on_spent(self) -> None:
        """Its process comes near its own limit of processor time: the next calls get another one."""
        self._ends.say("used as much processor time as one call may: it serves its calls and is replaced")
        self.spent = True
        self._ends.condemn()
        if not self._calls:
            self.end_spent()

    def _on_left_running(self, used_s: float) -> None:
        """What a call left behind goes on without one: nobody's limit ends it, and the next call would pay for it."""
        message = f"used {used_s:.1f} s of processor time since its last call ended: it is replaced"
        self._ends.say(message, level="warning")
        self._ends.finish()
