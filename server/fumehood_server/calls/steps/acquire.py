"""The step of a call that waits for its turn and for a worker."""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType

from fumehood_server.calls.call import Call
from fumehood_server.calls.deadlines import MIN_WAIT_S, Bound, Deadline
from fumehood_server.calls.turns import Turns
from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.plugin import RegisteredTool, WorkerSpec
from fumehood_server.model.tool import ExecutionMode
from fumehood_server.model.worker import Worker, WorkerLease, WorkerPools


class Place:
    """A worker's place that a call holds, and the turn of its tool. Leaving the context gives back both."""

    __slots__ = ("_lease", "_tool", "_turns")

    def __init__(self, lease: WorkerLease, turns: Turns | None, tool: str) -> None:
        """`turns` is None where the tool's calls may run beside one another."""
        self._lease = lease
        self._turns = turns
        self._tool = tool

    def __enter__(self) -> Worker:
        return self._lease.worker

    def __exit__(
        self, _kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            self._lease.release()
        finally:
            if self._turns is not None:
                self._turns.give_back(self._tool)


async def acquire_worker(
    call: Call, tool: RegisteredTool, spec: WorkerSpec, pools: WorkerPools, turns: Turns, *, since: float, again: bool
) -> Place:
    """The tool's turn, if its calls run one at a time, and a place on a worker. Waits only where there is none.

    `since`: when it began to wait, on the event loop's clock. `again`: whether it was sent to a worker before. That
    one's death can put the next start off for longer than the call has waited since, so it waits for that, once.

    Raises:
        EndedEarlyError: the call was cancelled or met its deadline before.
        WorkerUnavailableError: no worker can be had.
    """
    name = tool.name
    deadline = call.deadline(Bound.WAIT, since, max(MIN_WAIT_S, tool.timeout_s))
    sequential = tool.definition.execution_mode is ExecutionMode.SEQUENTIAL
    if sequential and not turns.try_take(name):
        await call.wait_for(lambda: turns.take(name), deadline)
    try:
        lease = pools.try_acquire(spec)
        if lease is None:
            lease = await _acquire(call, spec, pools, deadline, again=again)
    except BaseException:
        if sequential:
            turns.give_back(name)
        raise
    return Place(lease, turns if sequential else None, name)


async def _acquire(call: Call, spec: WorkerSpec, pools: WorkerPools, deadline: Deadline, *, again: bool) -> WorkerLease:
    try:
        return await call.wait_for(lambda: pools.acquire(spec), deadline)
    except WorkerUnavailableError as exc:
        wait_s = exc.error.details.get("retry_after_s")
        if not again or not isinstance(wait_s, float):
            raise
    await call.wait_for(functools.partial(asyncio.sleep, wait_s), deadline)
    return await call.wait_for(lambda: pools.acquire(spec), deadline)
