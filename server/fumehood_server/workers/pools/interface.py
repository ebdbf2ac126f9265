"""The interface of pools of every kind, the dependencies they share, and their wake-up event."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from fumehood_server.errors import WorkerUnavailableError
from fumehood_server.model.waiters import Releasable, WaiterQueue
from fumehood_server.workers.pools.worker_records import WorkerRecords

if TYPE_CHECKING:
    from fumehood_server.model.call import CallError
    from fumehood_server.model.journal import Journal
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.model.plugin_requests import PluginRequestHandler
    from fumehood_server.model.tool import Reason
    from fumehood_server.model.worker import WorkerInfo, WorkerLease
    from fumehood_server.workers.output.logs import PluginLog
    from fumehood_server.workers.process.attempt import WorkerAttempt
    from fumehood_server.workers.settings import WorkerSettings

_Lease = TypeVar("_Lease", bound=Releasable)

Verify = Callable[["WorkerSpec"], Awaitable["Reason | None"]]
"""Why no worker of a spec may be started right now, such as changed files. None when one may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContext:
    """What a pool needs to start workers."""

    spec: WorkerSpec
    log: PluginLog
    settings: WorkerSettings
    ids: itertools.count[int]
    """Numbers workers over all pools."""
    verify: Verify | None
    plugin_requests: PluginRequestHandler | None
    journal: Journal | None = None
    starts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Processes started so far, by plugin and kind, over all pools."""

    def new_id(self, kind: str = "") -> str:
        """The id of the next worker, which is counted."""
        self.starts[self.spec.plugin, kind.removesuffix("-") or self.spec.isolation.value] += 1
        return f"{self.spec.plugin}-{kind}{next(self.ids)}"

    @property
    def records(self) -> WorkerRecords:
        """Where starts and ends of its workers are recorded."""
        return WorkerRecords(self.journal, self.spec)


class Pool(Protocol):
    """The workers of one spec. `run` is its life: a task of `Pools` from its first caller until it is empty."""

    @property
    def spec(self) -> WorkerSpec:
        """What its workers are."""

    @property
    def ended(self) -> bool:
        """Whether `run` has returned, or is about to: nobody gets a worker here any more."""

    async def run(self) -> None:
        """Start and end workers as they are needed, and return when there are none and nothing is to be remembered."""

    def try_acquire(self) -> WorkerLease | None:
        """A place right now, or None."""

    async def acquire(self) -> WorkerLease:
        """A place, after a wait; see `WorkerPools.acquire`. Cancel it at will."""

    def infos(self) -> tuple[WorkerInfo, ...]:
        """Its workers, as the operator sees them."""

    def unanswered(self) -> list[WorkerAttempt]:
        """The calls under way."""

    def retire(self) -> None:
        """End each worker once nobody uses it. Who waits is still served."""

    def refuse_waiting(self) -> None:
        """The sidecar shuts down: nobody gets a place any more."""

    def finish(self) -> None:
        """Ask every worker to exit."""

    def kill(self) -> None:
        """End every process at once."""


class Wakeup:
    """Lets the coroutine of a pool sleep until something has changed, or until a time."""

    __slots__ = ("_changed",)

    def __init__(self) -> None:
        """Nothing has changed yet."""
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Something has changed."""
        self._changed.set()

    async def wait(self, *, until: float = math.inf) -> None:
        """Return when something has changed since the last return, or it is so late on the event loop's clock."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if until == math.inf else until):
                await self._changed.wait()
        self._changed.clear()


def fail_waiting(waiters: WaiterQueue[_Lease], error: CallError) -> None:
    """Tell everybody who waits for a worker that there is none to be had."""
    waiters.fail_all(lambda: WorkerUnavailableError(error))
