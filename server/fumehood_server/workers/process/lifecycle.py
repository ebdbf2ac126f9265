"""The state machine of one worker, and the condition variable that the coroutine of its life waits on."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from fumehood_server.errors import FumehoodError
from fumehood_server.model.worker import WorkerState
from fumehood_server.workers import faults

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fumehood_server.model.call import CallError
    from fumehood_server.workers.faults import Violation
    from fumehood_server.workers.output.logs import PluginLog


class EndRequest(IntEnum):
    """How the end of a worker is asked for, from the mildest to the hardest. A later request can only be harder."""

    NONE = 0
    STOP_ADMITTING = 1
    """It gets no new calls, and ends when those that it has are over."""
    SHUTDOWN = 2
    """It is asked to exit, by a frame."""
    TERMINATE = 3
    """Its program gets SIGTERM."""
    KILL = 4
    """Its processes get SIGKILL, and nothing that it says counts any more."""


class ClosedPipe(NamedTuple):
    """A pipe that a worker closed, and what that is if it lives on."""

    violation: Violation
    problem: str
    at: float
    """On the event loop's clock."""


class ImpossibleTransitionError(FumehoodError):
    """A worker can't get from one state to the other. We must mend the sidecar."""

    def __init__(self, state: WorkerState, to: WorkerState) -> None:
        """Keep both."""
        super().__init__(f"a worker that is {state} can't become {to}")
        self.state = state
        self.to = to


_NEXT = {
    WorkerState.STARTING: {WorkerState.READY, WorkerState.ENDING},
    WorkerState.READY: {WorkerState.ENDING},
    WorkerState.ENDING: {WorkerState.DEAD},
}


def advance(state: WorkerState, to: WorkerState) -> WorkerState:
    """The one place that decides where a worker goes from where it stands.

    Raises:
        ImpossibleTransitionError: it can't go there.
    """
    if to not in _NEXT.get(state, ()):
        raise ImpossibleTransitionError(state, to)
    return to


class Lifecycle:
    """Where one worker stands, who asked for its end, and which of its processes have exited.

    Whatever may end a worker, such as a broken frame or a limit, asks for it here and does nothing else; the coroutine
    of the worker's life (`process.worker`) waits here and does it. For one waiting coroutine.
    """

    __slots__ = (
        "_changed",
        "_log",
        "_plugin",
        "_worker_id",
        "cause",
        "closed_pipe",
        "exited",
        "failed",
        "kept_until",
        "requested",
        "running",
        "state",
        "tools_changed",
    )

    def __init__(self, plugin: str, worker_id: str, log: PluginLog) -> None:
        """Of a worker that is `STARTING`. `log` is told why it ends."""
        self._plugin = plugin
        self._worker_id = worker_id
        self._log = log
        self._changed = asyncio.Event()
        self.state = WorkerState.STARTING
        self.requested = EndRequest.NONE
        """The hardest request for its end so far."""
        self.cause: CallError | None = None
        """What it died of. None while it lives and is well."""
        self.failed = False
        """Whether it ended by itself or by its own fault, not because it was asked to."""
        self.closed_pipe: ClosedPipe | None = None
        """The pipe that it closed first, if it did before it was seen to exit."""
        self.tools_changed = False
        """Whether it is replaced since it changed its tools after they had been accepted."""
        self.kept_until = 0.0
        """Until when it isn't replaced for that, on the event loop's clock."""
        self.running: set[int] = set()
        """Pidfds of those of its processes that have not exited."""
        self.exited = False
        """Whether one of them has: the program's own or the first one of its namespace, which end together."""

    @property
    def vanished(self) -> bool:
        """Whether none of its processes is left."""
        return self.exited and not self.running

    def become_ready(self) -> None:
        """It said Ready and was accepted."""
        self.state = advance(self.state, WorkerState.READY)
        self.notify()

    def become_dead(self) -> None:
        """Nothing is left of it."""
        self.state = advance(self.state, WorkerState.DEAD)

    def request(self, end: EndRequest, cause: CallError | None = None) -> None:
        """Ask for its end. The hardest request counts, and the first cause."""
        if self.state is WorkerState.DEAD:
            return
        self.cause = self.cause or cause
        self.requested = max(self.requested, end)
        self.stop_admitting()

    def stop_admitting(self) -> None:
        """It gets no new calls, for it was asked to end or has exited. Idempotent."""
        if self.state in (WorkerState.STARTING, WorkerState.READY):
            self.state = advance(self.state, WorkerState.ENDING)
        self.notify()

    def fail(self, cause: CallError) -> None:
        """Kill it for its own fault, unless it is being killed already."""
        if self.requested < EndRequest.KILL and self.state is not WorkerState.DEAD:
            self.failed = True
            self.say(cause.message.split("\n", 1)[0], level="error")
            self.request(EndRequest.KILL, cause)

    def violated(self, violation: Violation, problem: str) -> None:
        """It broke a rule of the wire."""
        self.fail(faults.violation_error(self._plugin, violation, f"{problem} ({violation})"))

    def pipe_closed(self, violation: Violation, problem: str) -> None:
        """It closed a pipe: to exit, or as a violation if it lives on."""
        if self.closed_pipe is None:
            self.closed_pipe = ClosedPipe(violation, problem, asyncio.get_running_loop().time())
        self.notify()

    def watch_exits(self, pidfds: Iterable[int]) -> None:
        """Take note of the exit of each of these processes (pidfd_open(2): readable once it has exited)."""
        loop = asyncio.get_running_loop()
        for pidfd in pidfds:
            self.running.add(pidfd)
            loop.add_reader(pidfd, self._process_exited, pidfd)

    def _process_exited(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        self.running.discard(pidfd)
        self.exited = True
        self.notify()

    def notify(self) -> None:
        """Something has changed that may be waited for."""
        self._changed.set()

    async def wait_for_change(self, *, until: float = math.inf) -> None:
        """Wait until something has changed, or it is so late on the event loop's clock."""
        self._changed.clear()
        if until == math.inf:
            await self._changed.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    async def until(self, condition: Callable[[], bool], *, within_s: float) -> bool:
        """Wait until something is so, for so long at most, and say whether it is."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + within_s
        while not condition() and clock() < deadline:
            await self.wait_for_change(until=deadline)
        return condition()

    def say(self, message: str, *, level: str = "info") -> None:
        """Write a line to the plugin's log."""
        self._log.write("sidecar", level, message, worker_id=self._worker_id)
