"""Runs calls: the one way in for every servicer."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

from fumehood_server.calls.call import ActiveCall, Machinery, OnEnd, OnUpdate
from fumehood_server.calls.registry import Registry
from fumehood_server.calls.schemas import Validators
from fumehood_server.calls.steps.find import Tools
from fumehood_server.calls.steps.turn import SequentialGate
from fumehood_server.model.call import CallOutcome, CallRequest
from fumehood_server.model.worker import CancelReason, WorkerPools
from fumehood_server.telemetry import call_lines, get_logger

LINGER_S = 15.0
"""How long the end of the executor waits for workers to let go of cancelled calls: above their grace."""

_DEADLINE_SKEW_S = 0.02
"""gRPC cancels a handler at the caller's deadline by its own clock, which can be a little before our timer's."""


class Executor:
    """Admits calls and gives each exactly one outcome. An async context manager; for one event loop.

    Leaving the context cancels what is under way and waits for it.
    """

    def __init__(self, tools: Tools, pools: WorkerPools, *, max_concurrent_calls: int) -> None:
        """`max_concurrent_calls` bounds the calls under way in the whole sidecar."""
        self.max_calls_of_one = max(1, max_concurrent_calls // 2)
        """Most calls that one session should have under way, so that it leaves others a place."""
        self._tools = tools
        self._pools = pools
        self._registry = Registry(max_concurrent_calls)
        self._tasks = asyncio.TaskGroup()
        self._machinery: Machinery | None = None

    async def __aenter__(self) -> Self:
        """Own the tasks of calls that wait."""
        await self._tasks.__aenter__()
        self._machinery = Machinery(
            tools=self._tools,
            pools=self._pools,
            validators=Validators(),
            gate=SequentialGate(),
            registry=self._registry,
            log=get_logger(),
            lines=call_lines(),
            loop=asyncio.get_running_loop(),
            spawn=self._tasks.create_task,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel all calls, then wait for their tasks and, within `LINGER_S`, for their workers."""
        self.close_admission()
        self.cancel_all(CancelReason.SHUTDOWN)
        try:
            async with asyncio.timeout(LINGER_S):
                await self._registry.idle()
        except TimeoutError:
            get_logger().warning("workers did not let go of their calls", calls=len(self._registry))
        finally:
            await self._tasks.__aexit__(kind, value, trace)

    def start(self, request: CallRequest, on_end: OnEnd, on_update: OnUpdate | None = None) -> ActiveCall:
        """Admit a call and take it as far as it goes without waiting. `on_end` gets its outcome, once, maybe at once.

        Raises:
            RefusedError: it is not admitted, and `on_end` will not be called.
        """
        if self._machinery is None:
            raise AssertionError("enter the executor first")
        call = ActiveCall(self._machinery, request, on_end, on_update)
        self._registry.add(request.call_id, call)
        call.begin()
        return call

    async def call(self, request: CallRequest, on_update: OnUpdate | None = None) -> CallOutcome:
        """Run a call and return its outcome. Cancelling this cancels the call, whose outcome is logged all the same.

        Raises:
            RefusedError: it is not admitted.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[CallOutcome] = loop.create_future()

        def on_end(outcome: CallOutcome) -> None:
            if not ended.done():
                ended.set_result(outcome)

        call = self.start(request, on_end, on_update)
        try:
            return await ended
        except asyncio.CancelledError:
            call.cancel(self.abandonment(request))
            raise

    def abandonment(self, request: CallRequest) -> CancelReason:
        """Why a call's stream ended early: its caller's deadline, or its caller."""
        deadline = request.caller_deadline
        if deadline is not None and time.monotonic() >= deadline - _DEADLINE_SKEW_S:
            return CancelReason.DEADLINE
        return CancelReason.CALLER

    def cancel(self, call_id: str, note: str = "") -> bool:
        """Cancel the call of this id on a caller's word. False: none is under way."""
        call = self._registry.find(call_id)
        if call is None:
            return False
        call.cancel(CancelReason.CALLER, note)
        return True

    def close_admission(self) -> None:
        """Refuse new calls from now on."""
        self._registry.close()

    def cancel_all(self, reason: CancelReason) -> None:
        """End every call now."""
        for call in self._registry.calls():
            call.cancel(reason)

    async def idle(self) -> None:
        """Return once no call is under way."""
        await self._registry.idle()

    @property
    def draining(self) -> bool:
        """Whether new calls are refused."""
        return self._registry.closed

    @property
    def calls_in_flight(self) -> int:
        """Number of calls under way."""
        return len(self._registry)
