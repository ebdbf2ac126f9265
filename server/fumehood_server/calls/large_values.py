"""A thread for arguments and results that are long: reading and validating 1 MiB takes half a second at worst.

One thread, since each that computes makes the loop wait for the interpreter's lock (GIL): native code that keeps it
holds up the loop as long as before, but none of it takes long by itself.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LARGE_CHARS = 16 * 1024
"""Texts up to here are read on the loop, within some 5 ms. A hand-over costs 0.1 ms."""

_Result = TypeVar("_Result")


class LargeValues:
    """The thread. It starts with the first long text, and its queue is bounded by the calls under way."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "large-values")

    def close(self) -> None:
        """End the thread with what it is doing, and forget what waits."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """What the function returns, on the thread. A cancellation leaves it to its end there."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(function, *arguments))
