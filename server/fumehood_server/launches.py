"""Process starts and ends off the event loop: the launch thread's work, awaited so that a cancellation leaves nothing.

A start takes 15 ms and the death of what was started as long, which is too much for the loop. What was begun is waited
for whatever is cancelled, since nobody else knows of the process that comes of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fumehood_sandbox import launch_thread

import fumehood_server
from fumehood_server.settling import settled

_Result = TypeVar("_Result")


async def start_off_loop(start: Callable[[], _Result], undo: Callable[[_Result], object]) -> _Result:
    """What `start` returns on the launch thread. Cancelled, it ends after `undo` of that, if `start` began.

    Raises:
        BaseException: what `start` raises.
    """
    submitted = launch_thread().submit(start)
    started = asyncio.wrap_future(submitted)
    try:
        return await asyncio.shield(started)
    except asyncio.CancelledError:
        if not submitted.cancel():
            await settled(started)
            if started.exception() is None:
                made = started.result()
                await settled(asyncio.wrap_future(launch_thread().submit(lambda: undo(made))))
        raise


async def end_off_loop(end: Callable[[], object]) -> None:
    """Do this on the launch thread, to its end; a cancellation comes afterwards.

    Raises:
        BaseException: what `end` raises.
    """
    ending = asyncio.wrap_future(launch_thread().submit(end))
    cancelled = await settled(ending)
    ending.result()
    if cancelled is not None:
        raise cancelled


def import_path() -> list[str]:
    """The `sys.path` of a process of our own: what this one imports from, but for its working directory."""
    package = str(Path(fumehood_server.__file__).resolve().parents[1])
    return list(dict.fromkeys([package, *(each for each in sys.path if each.startswith("/"))]))
