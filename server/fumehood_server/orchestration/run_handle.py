"""The handle on one run: its task, its end, and what it is told meanwhile."""

from __future__ import annotations

import asyncio
import time

from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.caller import Caller
from fumehood_server.orchestration.happenings import HappeningLog
from fumehood_server.orchestration.messages import Message
from fumehood_server.orchestration.request import SystemRequest
from fumehood_server.orchestration.response import SystemResponse
from fumehood_server.orchestration.run import Run

SHUTDOWN = "the sidecar shuts down"
"""Why runs end that nobody else has ended."""


class RunHandle:
    """One admitted run. Whoever started it waits for `response`, and may `cancel` it."""

    def __init__(self, request: SystemRequest, digest: str, *, join_only: bool = False) -> None:
        """One that no task runs yet."""
        self.request = request
        self.join_only = join_only
        """Whether to begin nothing that is not on record."""
        self.digest = digest
        self.admitted_at = time.monotonic()
        self.log = HappeningLog()
        self.resumed = False
        """Whether it goes on from the record, or is answered from it."""
        self.run: Run | None = None
        """None: it does not ask models yet."""
        self.is_stopped = False
        """Whether somebody has stopped it, so that it goes on later."""
        self._why = SHUTDOWN
        self._has_begun = self._is_cancelled = False
        self._task: asyncio.Task[SystemResponse | RefusedError] | None = None

    def runs_in(self, task: asyncio.Task[SystemResponse | RefusedError]) -> None:
        """Say once which task it is."""
        self._task = task

    def begin(self) -> None:
        """Say once that its task runs. Raises asyncio.CancelledError: it was cancelled before."""
        self._has_begun = True
        if self._is_cancelled:
            raise asyncio.CancelledError

    async def response(self) -> SystemResponse:
        """Wait for its end. Cancelling this wait leaves the run as it is.

        Raises:
            RefusedError: it was not to be run.
        """
        if self._task is None:
            raise AssertionError("the orchestrator names the task before anybody has the run")
        response = await asyncio.shield(self._task)
        if isinstance(response, RefusedError):
            raise response
        return response

    def cancel(self, why: str) -> None:
        """End the run early. The first reason counts, and one that records its end already is left to that.

        Once: a second would cut short that its calls end, and that its own end is recorded.
        """
        is_ending = self._is_cancelled or (self.run is not None and self.run.is_ending)
        if self._task is not None and not is_ending:
            self._is_cancelled = True
            self._why = why
            if self._has_begun:  # else its task would end without having run at all
                self._task.cancel()

    def stop(self, why: str, *, resumable: bool) -> bool:
        """As `cancel`; with `resumable` without an end on record, where it can be gone on with, which this returns."""
        if self._is_cancelled or (self.run is not None and self.run.is_ending):
            return self.is_stopped
        if resumable and self.run is not None:
            self.run.suspend()
        self.is_stopped = resumable and (self.run is None or self.run.is_suspended)
        self.cancel(why)
        return self.is_stopped

    def suspend(self) -> None:
        """Have it begin nothing more, unless it ends already: see `Run.suspend`."""
        if self.run is not None and not self._is_cancelled and self.run.suspend():
            self.cancel(SHUTDOWN)

    @property
    def is_left_off(self) -> bool:
        """Whether it was cancelled to be gone on with later, by another sidecar or another time: it has no end."""
        return self._is_cancelled and (self.is_stopped or self._why == SHUTDOWN)

    async def steer(self, messages: tuple[Message, ...], kind: str, by: Caller) -> None:
        """See `Run.steer`."""
        if self.run is None:
            text = "the run has not begun: try again in a moment"
            raise RefusedError(Refusal(RefusalReason.RUN_NOT_STEERABLE, text))
        await self.run.steer(messages, kind, by)

    @property
    def why_ended(self) -> str:
        """Who asked for its end."""
        return self._why
