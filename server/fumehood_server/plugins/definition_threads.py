"""Threads of their own for the checks of definitions, which mostly wait: for their turn to compute, and in rests.

In asyncio's default executor, six processes of hostile plugins would keep everybody else's work waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Found = TypeVar("_Found")

_THREADS = ThreadPoolExecutor(16, thread_name_prefix="definitions")
"""Started as they are needed."""


async def in_thread(check: Callable[..., _Found], *what: Any) -> _Found:  # noqa: ANN401 - as `check` has it
    """What `check` returns. A cancelled wait leaves it to its end.

    Raises:
        BaseException: what `check` raises.
    """
    return await asyncio.get_running_loop().run_in_executor(_THREADS, check, *what)
