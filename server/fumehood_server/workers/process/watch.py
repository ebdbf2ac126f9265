"""Waits of a worker's life, during which its process is held to its limits and to its pipes."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from fumehood_server.workers.process.lifecycle import EndRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood_server.workers.process.lifecycle import Lifecycle
    from fumehood_server.workers.process.limit_enforcement import LimitEnforcement
    from fumehood_server.workers.settings import WorkerSettings


class Watch:
    """Looks at one process when its limits or its pipes are due, for as long as its worker's life waits here."""

    __slots__ = ("_life", "_limits", "_settings", "_tasks")

    def __init__(
        self, life: Lifecycle, limits: LimitEnforcement, settings: WorkerSettings, tasks: asyncio.TaskGroup
    ) -> None:
        """`tasks` are the worker's: in them a call that has reached a limit is ended."""
        self._life = life
        self._limits = limits
        self._settings = settings
        self._tasks = tasks

    async def until(self, condition: Callable[[], bool], *, within_s: float = math.inf) -> bool:
        """Wait for something, or for the process's exit, and say whether it is so. Meanwhile look at the process."""
        life, clock = self._life, asyncio.get_running_loop().time
        deadline = clock() + within_s
        while not (condition() or life.exited) and clock() < deadline:
            await life.wait_for_change(until=min(deadline, self._limits.due_at, self._pipe_due_at()))
            self._look(clock())
        return condition()

    def _look(self, now: float) -> None:
        """Hold the process to its limits and to its pipes, as far as that is due."""
        if now >= self._limits.due_at:
            for attempt, limit in self._limits.look(now):
                self._tasks.create_task(attempt.end_for_limit(limit))
        closed = self._life.closed_pipe
        if closed is not None and now >= self._pipe_due_at() and not self._life.exited:
            self._life.violated(closed.violation, closed.problem)

    def _pipe_due_at(self) -> float:
        """When a process that closed a pipe, as it does when it exits, must have done so."""
        closed = self._life.closed_pipe
        if closed is None or self._life.requested is EndRequest.KILL:
            return math.inf
        return closed.at + self._settings.pipe_grace_s
