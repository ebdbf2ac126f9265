"""What the engine can run, and the queue of each tool whose calls run one at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable
from typing import Protocol

from fumehood_sdk.call import Call
from fumehood_sdk.wire.plugin_frames import Sent


class Runnable(Protocol):
    """A tool that the engine can run: an author's function, or a program of kind `cli`."""

    @property
    def name(self) -> str:
        """The tool's name."""

    @property
    def is_async(self) -> bool:
        """Whether `invoke_async` runs it, on an event loop, rather than `invoke`, in a thread."""

    @property
    def sequential(self) -> bool:
        """Whether its calls run one at a time."""

    @property
    def preparation(self) -> Runnable | None:
        """What prepares its arguments, run as a tool. None: nothing does."""

    @property
    def interruptible(self) -> bool:
        """Whether `Cancelled` may be raised in `invoke`'s thread when the call was told to end and goes on."""

    def invoke(self, call: Call) -> Sent:
        """Run one call. Raises what the tool raises."""

    def invoke_async(self, call: Call) -> Awaitable[Sent]:
        """Run one call. Raises what the tool raises."""


class RegisteredTool:
    """A tool, whether its last call was slow, and the queue of its calls if they run one at a time."""

    __slots__ = ("_busy", "_lock", "_waiting", "invoke", "is_async", "name", "runnable", "sequential", "slow")

    def __init__(self, tool: Runnable) -> None:
        self.runnable = tool
        self.name = tool.name
        self.is_async = tool.is_async
        self.sequential = tool.sequential
        self.invoke = tool.invoke
        self.slow = False
        """Whether its last call took so long that the next one passes the leadership on before it starts."""
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: deque[Call] = deque()

    def run_or_queue(self, call: Call) -> bool:
        """Whether a call of a sequential tool may run now. If not it is queued, and `next_queued` returns it later."""
        with self._lock:
            if self._busy:
                self._waiting.append(call)
                return False
            self._busy = True
            return True

    def next_queued(self) -> Call | None:
        """After a call of a sequential tool: the next one, to run in the same thread."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._busy = False
            return None

    def remove_queued(self, call: Call) -> bool:
        """Take a call out of the queue. False: it is not in there."""
        with self._lock:
            try:
                self._waiting.remove(call)
            except ValueError:
                return False
            return True
