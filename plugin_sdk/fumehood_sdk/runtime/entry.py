"""A tool as the engine keeps it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable
from typing import Protocol

from fumehood_sdk.call import Call
from fumehood_sdk.wire.plugin import Sent


class Runnable(Protocol):
    """What the engine can run."""

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
    def interruptible(self) -> bool:
        """Whether `Cancelled` may be raised in `invoke`'s thread when the call was told to end and goes on."""

    def invoke(self, call: Call) -> Sent:
        """Run one call. Raises what the tool raises."""

    def invoke_async(self, call: Call) -> Awaitable[Sent]:
        """Run one call. Raises what the tool raises."""


class Entry:
    """A tool, how long it took lately, and the calls that wait for their turn."""

    __slots__ = ("_busy", "_lock", "_waiting", "invoke", "is_async", "name", "sequential", "slow", "tool")

    def __init__(self, tool: Runnable) -> None:
        self.tool = tool
        self.name = tool.name
        self.is_async = tool.is_async
        self.sequential = tool.sequential
        self.invoke = tool.invoke
        self.slow = False
        """Whether its last call took so long that another thread had better read frames meanwhile."""
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: deque[Call] = deque()

    def begin(self, call: Call) -> bool:
        """Whether a call of a sequential tool may run now. If not it waits, and `following` returns it in its turn."""
        with self._lock:
            if self._busy:
                self._waiting.append(call)
                return False
            self._busy = True
            return True

    def following(self) -> Call | None:
        """After a call of a sequential tool: the one that is to run next in the same thread."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._busy = False
            return None

    def withdraw(self, call: Call) -> bool:
        """Take a call out of those that wait. False: it does not."""
        with self._lock:
            try:
                self._waiting.remove(call)
            except ValueError:
                return False
            return True
