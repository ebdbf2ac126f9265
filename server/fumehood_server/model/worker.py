"""The executor's interface to workers. It has no process id, so that a worker may run on another machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood_sandbox import Receipt

    from fumehood_server.model.call import Block, CallContext, CallError, CallUpdate
    from fumehood_server.model.call_inputs import CallInputs
    from fumehood_server.model.events import About
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import EgressUsage
    from fumehood_server.model.taken_values import TakenValues
    from fumehood_server.model.trace import TraceContext


class CancelReason(Enum):
    """Why a call is to end."""

    DEADLINE = "deadline"
    CALLER = "caller"
    SHUTDOWN = "shutdown"
    LIMIT = "limit"


class WorkerState(StrEnum):
    """States of a worker. `fumehood_server.workers.process.lifecycle` owns the transitions."""

    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"
    BACKOFF = "backoff"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One attempt of a call, ready to be sent."""

    call_id: str
    tool: str
    arguments_json: str
    context: CallContext
    attempt: int
    timeout_s: float
    on_update: Callable[[CallUpdate], None] | None
    max_recorded_bytes: int = 0
    """Most bytes of values that are kept of it. 0: none."""
    replay: TakenValues | None = None
    """What it takes from its record, where it is run again from that."""
    trace: TraceContext | None = None
    prepares: bool = False
    """Whether the arguments are to be prepared, rather than the tool run."""
    about: About | None = None
    """What the journal's events of its requests are about. None: it is not recorded."""
    inputs: CallInputs | None = None
    """Answers what its tool asks people and models. None: nobody does."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the processes that ran an attempt used meanwhile, with the calls that ran there at the same time."""

    cpu_s: float
    peak_memory_bytes: int
    """Since the process started. 0 where it isn't known."""
    source: str
    """What measured it: "cgroup2", "cgroup1", both with a plus between them, or "proc"."""


@dataclass(frozen=True, slots=True)
class InvocationResult:
    """How one attempt ended: by the plugin's own `Result`, or by an error that the sidecar found. Never raises."""

    content: tuple[Block, ...]
    details_json: str
    terminate: bool
    error: CallError | None
    output_bytes: int
    used: Used | None = None
    """What the process used meanwhile. None when nothing was dispatched."""
    egress: EgressUsage | None = None
    """What its requests sent to hosts and received from them. None: it made none."""
    values: TakenValues | None = None
    """What it took from outside. None: nothing, or nobody asked."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker's state, for operators."""

    worker_id: str
    spec: WorkerSpec
    state: WorkerState
    calls_in_flight: int
    calls_served: int
    started_at: float
    """Unix time in seconds."""
    process_id: int
    receipt: Receipt | None = None
    """The process's sandbox receipt. None while there is no process."""


class Attempt(Protocol):
    """One attempt of a call, sent to a worker. It ends once."""

    @property
    def ended(self) -> bool:
        """Whether `result` has something to return."""

    @property
    def updates(self) -> int:
        """Updates that the tool has sent so far, whether or not anybody wants them."""

    def hold_updates(self, held: bool, /) -> None:
        """Have the tool wait with what it sends, or go on, if its process serves no other call. Not after its end."""

    async def result(self) -> InvocationResult:
        """Wait for the end: a result, an error, the worker's death. Cancelling the wait leaves the attempt as it is."""

    async def end(self, reason: CancelReason) -> InvocationResult:
        """Ask the plugin to end the call; end its process if it has not answered within its grace.

        Returns at once what an attempt that has ended returned. Bounded: cancel frame, grace, SIGTERM, kill. A caller
        that is cancelled meanwhile stops waiting; the process is ended all the same.
        """


class Worker(Protocol):
    """A process, here or elsewhere, that runs calls of one `WorkerSpec`."""

    @property
    def worker_id(self) -> str:
        """Id within the sidecar's lifetime, for logs."""

    @property
    def receipt(self) -> Receipt:
        """The process's sandbox receipt."""

    def invoke(self, invocation: Invocation) -> Attempt:
        """Send one attempt. Never waits and never raises: what goes wrong is the attempt's result."""


class WorkerLease(Protocol):
    """A lease of one of a worker's concurrent calls, given back by `release`."""

    @property
    def worker(self) -> Worker:
        """The worker."""

    def release(self) -> None:
        """Give the lease back. Idempotent."""


class WorkerPools(Protocol):
    """All workers of the sidecar, by spec."""

    def try_acquire(self, spec: WorkerSpec) -> WorkerLease | None:
        """A lease of a warm worker, or None when there is none right now.

        The usual path of a call: what awaits nothing needs no timeout around it, which costs more than the lease.
        """

    async def acquire(self, spec: WorkerSpec) -> WorkerLease:
        """A lease, after starting a worker or waiting for one.

        Raises:
            WorkerUnavailableError: no worker can be had; its `error` is the call's error.
        """

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every worker that is alive or waits to restart."""

    async def retire(self, keys: frozenset[str]) -> None:
        """Take no new calls on workers whose spec has one of these keys and end them once their calls have finished."""
