"""Executor for reading and hashing plugins' files: two threads of its own, of which one plugin has one at a time.

A plugin may have 512 MiB, and its files are read before each start of a worker: in asyncio's default executor the six
tools of one plugin would keep everybody else's work waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

_Found = TypeVar("_Found")

THREADS = 2


class HashingThreads:
    """The threads, and whose turn it is. For one event loop. The threads end with it."""

    def __init__(self) -> None:
        """Starts none yet."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="plugin-files")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By plugin, while one of its reads waits or runs."""

    async def run(self, plugin: str, read: Callable[..., _Found], *what: Any) -> _Found:  # noqa: ANN401 - as `read` has it
        """What `read` returns, once those of the plugin's that came before have ended.

        A cancelled wait leaves a read that has begun to its end, and the plugin's next one waits for that.

        Raises:
            BaseException: what `read` raises.
        """
        turn = self._turns.get(plugin)
        if turn is None:
            turn = self._turns[plugin] = asyncio.Lock()
        await turn.acquire()
        reading = asyncio.get_running_loop().run_in_executor(self._threads, read, *what)
        reading.add_done_callback(lambda _: turn.release())  # a cancelled wait ends before its thread does
        return await asyncio.shield(reading)
