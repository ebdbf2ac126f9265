"""Runs asynchronous calls on one event loop in a thread of its own. Importing this module imports asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from fumehood_sdk.call import Call
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.registered_tool import RegisteredTool
from fumehood_sdk.wire.plugin_frames import Failure, Sent


class AsyncCalls:
    """The event loop and the calls on it, for as long as the process lives."""

    def __init__(self, end: Callable[[Call, Sent | Failure], None], *, threaded: bool = True) -> None:
        """`end` takes each call with its outcome, once. Without a thread the loop runs one call, by `run`."""
        self._end = end
        self._sequential_locks: dict[str, asyncio.Lock] = {}
        self._loop = asyncio.new_event_loop()
        if threaded:
            threading.Thread(target=self._serve, name="fumehood-async", daemon=True).start()

    def run_call(self, call: Call) -> None:
        """Run one call in this thread, for a loop without a thread of its own."""
        asyncio.set_event_loop(self._loop)
        call.task = self._loop.create_task(self._run_to_end(call))
        while not call.task.done():
            try:
                self._loop.run_until_complete(call.task)
            except BaseException as error:  # noqa: BLE001 - see `_serve`; the call's own exceptions end with the call
                self._loop.call_exception_handler(
                    {"message": "a task tried to end the process", "exception": _as_exception(error)}
                )

    def start_call(self, call: Call) -> None:
        """Start a call. From any thread."""
        self._loop.call_soon_threadsafe(self._begin_call, call)

    def cancel_call(self, call: Call) -> None:
        """Cancel a call's task. From any thread, after `call.cancel`."""
        self._loop.call_soon_threadsafe(self._cancel_task, call)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - a task of the author's that exits must not stop the others
                self._loop.call_exception_handler(
                    {"message": "a task tried to end the process", "exception": _as_exception(error)}
                )

    def _begin_call(self, call: Call) -> None:
        if call.cancel_reason is not None:
            self._end(call, failures.cancelled_failure(call))
        else:
            call.task = self._loop.create_task(self._run_to_end(call))

    def _cancel_task(self, call: Call) -> None:
        if call.task is None:
            return
        call.task.cancel(call.cancel_reason)
        if call.end_claim:
            # A task that is cancelled before its first step takes none, so it can't answer.
            call.end_claim.pop()
            self._end(call, failures.cancelled_failure(call))

    async def _run_to_end(self, call: Call) -> None:
        tool: RegisteredTool = call.tool
        outcome: Sent | Failure
        call.end_claim.pop()
        try:
            if tool.sequential:
                async with self._sequential_locks.setdefault(tool.name, asyncio.Lock()):
                    outcome = await tool.runnable.invoke_async(call)
            else:
                outcome = await tool.runnable.invoke_async(call)
        except BaseException as error:  # noqa: BLE001 - the process outlives its calls, SystemExit included
            outcome = failures.describe_exception(call, error)
        self._end(call, outcome)


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
