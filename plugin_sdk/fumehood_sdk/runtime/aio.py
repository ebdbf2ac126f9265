"""Runs asynchronous calls on one event loop in a thread of its own. Importing this module imports asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from fumehood_sdk.call import Call
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.entry import Entry
from fumehood_sdk.wire import plugin as wire


class AsyncCalls:
    """The event loop and the calls on it. Lives as long as the process."""

    def __init__(self, end: Callable[[Call, bytes], None]) -> None:
        """`end` takes each call with its encoded result, once."""
        self._end = end
        self._turns: dict[str, asyncio.Lock] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="fumehood-async", daemon=True).start()

    def start(self, call: Call) -> None:
        """Start a call. From any thread."""
        self._loop.call_soon_threadsafe(self._begin, call)

    def cancel(self, call: Call) -> None:
        """Cancel a call's task. From any thread, after `call.cancel`."""
        self._loop.call_soon_threadsafe(self._cancel, call)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - a task of the author's that exits must not stop the others
                self._loop.call_exception_handler(
                    {"message": "a task tried to end the process", "exception": _as_exception(error)}
                )

    def _begin(self, call: Call) -> None:
        if call.cancel_reason is not None:
            self._end(call, failures.cancelled(call))
        else:
            call.task = self._loop.create_task(self._run(call))

    def _cancel(self, call: Call) -> None:
        if call.task is not None:
            call.task.cancel(call.cancel_reason)

    async def _run(self, call: Call) -> None:
        entry: Entry = call.tool
        try:
            if entry.sequential:
                async with self._turns.setdefault(entry.name, asyncio.Lock()):
                    body = await self._invoke(call, entry)
            else:
                body = await self._invoke(call, entry)
        except BaseException as error:  # noqa: BLE001 - the process outlives its calls, SystemExit included
            body = failures.encode_safely(call, error)
        self._end(call, body)

    async def _invoke(self, call: Call, entry: Entry) -> bytes:
        content, details_json, terminate = await entry.tool.invoke_async(call)
        return wire.result(call.invocation_id, content, details_json, terminate=terminate)


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
