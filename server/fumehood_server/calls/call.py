"""The handle on one call: its task, its cancellation, and the deadlines under which the task waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from fumehood_server.calls.cancellation import Cancellation
from fumehood_server.calls.deadlines import Bound, Deadline, first_deadline
from fumehood_server.calls.errors import EndedEarlyError
from fumehood_server.calls.questions import CallQuestions
from fumehood_server.calls.repeats import Repeats
from fumehood_server.calls.updates import UpdateLog
from fumehood_server.errors import RefusedError
from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.model.events import About
from fumehood_server.model.steady_clock import STEADY_CLOCK
from fumehood_server.model.worker import CancelReason

_Result = TypeVar("_Result")

_DEADLINE_SKEW_S = 0.02
"""gRPC cancels a handler at the caller's deadline by its own clock, which can be a little before our timer's."""


class Call:
    """One admitted call. Whoever started it waits for `outcome` and may `cancel`; its own task calls `wait_for`.

    A cancellation reaches the task only while that is inside `wait_for`. At any other time it is noted, and the next
    `wait_for` raises it: a task that is cancelled before its first line would end without an outcome.

    Times are `time.monotonic`'s, which is the clock of event loops as well; a loop's own `time` may be as coarse as a
    millisecond.
    """

    __slots__ = (
        "_cancellation",
        "_task",
        "_waits",
        "about",
        "admitted_at",
        "awaits_approval",
        "is_abandoned",
        "questions",
        "ready_at",
        "request",
        "updates",
    )

    def __init__(self, request: CallRequest) -> None:
        """One that no task runs yet."""
        self.request = request
        self.updates = UpdateLog()
        self.questions = CallQuestions(self.updates)
        self.admitted_at = self.ready_at = time.monotonic()
        """When our own bounds on its waits begin: once it is approved, where it had to be."""
        self.awaits_approval = False
        self.is_abandoned = False
        """Whether its stream ended, rather than that somebody asked for its end."""
        self.about: About | None = None
        """What its events are about. None: its start was not recorded yet."""
        self._cancellation: Cancellation | None = None
        self._task: asyncio.Task[CallOutcome | RefusedError] | None = None
        self._waits = False

    def runs_in(self, task: asyncio.Task[CallOutcome | RefusedError]) -> None:
        """Say once which task runs the call."""
        self._task = task

    # For whoever started it.

    async def outcome(self) -> CallOutcome:
        """Wait for the end of the call. Cancelling this wait leaves the call as it is.

        Raises:
            RefusedError: it was not to be run: see `run_call`.
        """
        outcome = await asyncio.shield(self._its_task)
        if isinstance(outcome, RefusedError):
            raise outcome
        return outcome

    @property
    def cancellation(self) -> Cancellation | None:
        """The first word for its end. None: nobody asked for that."""
        return self._cancellation

    def cancel(self, reason: CancelReason, note: str = "", by: str = "") -> None:
        """End the call early. The first reason counts; a result that is here stands. `by` names who asks."""
        if self._cancellation is None:
            self._cancellation = Cancellation(self.request.tool, reason, note, by)
            if self._waits:
                self._its_task.cancel()

    def abandon(self) -> None:
        """End the call because its stream ended, by the caller's deadline or by the caller, unless it goes on then."""
        if self.request.continues:
            return
        deadline = self.request.caller_deadline
        if self._cancellation is None:
            self.is_abandoned = True
        late = deadline is not None and time.monotonic() >= deadline - _DEADLINE_SKEW_S
        self.cancel(CancelReason.DEADLINE if late else CancelReason.CALLER, by=self.request.caller)

    # For its steps.

    def deadline(self, own: Bound, since: float, own_s: float) -> Deadline:
        """The first of the caller's bounds and one of our own, which began at `since`."""
        return first_deadline(
            admitted_at=self.admitted_at,
            timeout_s=self.request.timeout_s,
            caller_deadline=self.request.caller_deadline,
            own=own,
            own_at=since + own_s,
            own_s=own_s,
        )

    def again_until_us(self) -> int:
        """The caller's first deadline as POSIX time in microseconds, beyond this process. 0: it set none."""
        request = self.request
        ends = [] if request.timeout_s is None else [self.admitted_at + request.timeout_s]
        ends += [] if request.caller_deadline is None else [request.caller_deadline]
        return STEADY_CLOCK.now_us() + round((min(ends) - time.monotonic()) * 1e6) if ends else 0

    def raise_if_over(self, deadline: Deadline) -> None:
        """Raise `EndedEarlyError` if the call was cancelled or the deadline has passed."""
        if self._cancellation is not None:
            raise EndedEarlyError(self._cancellation.error(), self._cancellation.reason)
        if deadline.at <= time.monotonic():
            raise EndedEarlyError(deadline.error(self.request.tool), CancelReason.DEADLINE)

    async def wait_for(self, start: Callable[[], Awaitable[_Result]], deadline: Deadline) -> _Result:
        """Await what `start` returns until the deadline, unless the call is cancelled. For the call's own task.

        Raises:
            EndedEarlyError: the call was cancelled or the deadline passed: before, or meanwhile, and then what was
                awaited has been cancelled.
        """
        self.raise_if_over(deadline)
        try:
            async with asyncio.timeout_at(deadline.at) as timeout:
                self._waits = True
                try:
                    return await start()
                finally:
                    self._waits = False
        except TimeoutError:
            if not timeout.expired():
                raise
        except asyncio.CancelledError:
            self._its_task.uncancel()
            if self._cancellation is None:  # the task was, by its group or its loop: the sidecar ends
                self._cancellation = Cancellation(self.request.tool, CancelReason.SHUTDOWN)
        if self._cancellation is not None:
            raise EndedEarlyError(self._cancellation.error(), self._cancellation.reason)
        raise EndedEarlyError(deadline.error(self.request.tool), CancelReason.DEADLINE)

    @property
    def _its_task(self) -> asyncio.Task[CallOutcome | RefusedError]:
        if self._task is None:
            raise AssertionError("the executor names the task before anybody has the call")
        return self._task


class JoinedCall(Call):
    """A request that repeats a call under way: it waits for that call's outcome, and can't end it."""

    __slots__ = ("_leave", "_repeats")

    def __init__(self, request: CallRequest, other: Call, repeats: Repeats, leave: Callable[[], None]) -> None:
        """`other` is the call that it repeats. `leave` is called once: nobody waits for this one any more."""
        super().__init__(replace(request, arguments_json=other.request.arguments_json))  # the same, held once
        self._leave: Callable[[], None] | None = leave
        self.updates = other.updates
        self._task = other._its_task  # noqa: SLF001 - of this class
        self._repeats = repeats

    async def outcome(self) -> CallOutcome:
        """See `Call`."""
        try:
            outcome = await super().outcome()
            await self._repeats.pace(self.request.caller, outcome)
        finally:
            self._end_wait()
        return outcome

    def abandon(self) -> None:
        """Its stream ended: the call goes on for whoever started it."""
        self._end_wait()

    def _end_wait(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None

    def cancel(self, reason: CancelReason, note: str = "", by: str = "") -> None:
        """Leave the call to whoever started it."""
