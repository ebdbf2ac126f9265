"""Gives memory that glibc's malloc holds free back to the kernel (malloc_trim(3)).

Blocks between others are never given back by free(3) alone: a sidecar whose callers had left 200 MiB unread kept them
for good. A low M_MMAP_THRESHOLD does the same, and tripled the processor time of a call with 500 KB of arguments.

What is free at the end of a thread's arena malloc_trim(3) doesn't look at: free(3) itself gives that back, above
M_TRIM_THRESHOLD. With 64 MiB there, what 256 half-sent requests had held stayed in the arenas of gRPC's threads, which
freed nothing more: 171 MiB above the 111 of before, with 4 MiB 7. It is lowered further for `LOW_S` with each trim, in
which threads that are at work free something. Were it so low all the time, calls with 500 KB of arguments would take a
third more processor time, for page faults; 4 MiB make no difference to them, and a twentieth to those with 1 MB.

Rejected: one arena for all threads (M_ARENA_MAX), with which some 20 MiB less stay after a burst. While it is trimmed
the event loop waits for its lock: 80 to 330 ms beside hostile callers, where 20 to 30 were seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import time
from collections.abc import AsyncIterator

INTERVAL_S = 5.0

KEPT_BYTES = 4 * 1024 * 1024
"""Free memory that is left alone: it is used again."""


LOW_S = 0.1
"""How long the end of an arena is given back above `_LOW_BYTES`."""

# Parameters of mallopt(3). Setting either has both keep to what was set. The first is the most that glibc comes to.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 32 * 1024 * 1024
_HIGH_BYTES, _LOW_BYTES = 4 * 1024 * 1024, 128 * 1024


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` (mallinfo(3)): ten sizes, of which `fordblks` is what is free in all arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
    ]


@contextlib.asynccontextmanager
async def trimmed_memory() -> AsyncIterator[None]:
    """Look each `INTERVAL_S` within the block, on a thread. Without glibc 2.33 or later this does nothing."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2") or not hasattr(libc, "malloc_trim"):
        yield
        return
    libc.mallinfo2.restype = _Mallinfo
    libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _HIGH_BYTES)

    async def look() -> None:
        before = 0
        while True:
            await asyncio.sleep(INTERVAL_S)
            before = await asyncio.to_thread(_trim, libc, before)

    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look())
        try:
            yield
        finally:
            looking.cancel()


def _trim(libc: ctypes.CDLL, before: int) -> int:
    """Trim where anything has happened since `before`. Returns what counts as free now, given back or not.

    What was given back still counts: memory that is used and freed again between two looks leaves the same number but
    for some bytes.
    """
    free: int = libc.mallinfo2().fordblks
    if free > KEPT_BYTES and free != before:
        libc.malloc_trim(0)
        libc.mallopt(_M_TRIM_THRESHOLD, _LOW_BYTES)
        time.sleep(LOW_S)
        libc.mallopt(_M_TRIM_THRESHOLD, _HIGH_BYTES)
    return free
