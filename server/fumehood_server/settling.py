"""Waits that go on when they are cancelled, for what must not be left half done."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def settled(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until it is done, however often this is cancelled. Returns the last cancellation."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def to_its_end(future: asyncio.Future[_Result]) -> _Result:
    """Its result. A cancellation comes once it is done, and in place of what it raises.

    Raises:
        BaseException: what it raises.
    """
    cancelled = await settled(future)
    if cancelled is None:
        return future.result()
    if not future.cancelled():
        future.exception()  # so that nobody is told that it was never looked at
    raise cancelled
