"""Keeps the threads that hand a call to each other on one processor, for as long as that is asked for.

gRPC's poller hears of a request and wakes the event loop; the loop asks for the message, which wakes the poller, which
wakes the loop. Left to itself the kernel wakes each on a processor that sleeps, which takes 10 to 50 microseconds, and
what one has just written lies in the other's cache. On one processor there is a switch between threads in place of
that, but nothing runs beside anything: right for one call after another, wrong for many at a time.

Where a thread may run is handed on to what it starts (sched_setaffinity(2)). So whoever starts a process calls `part`
before; threads that were started meanwhile are let go with the others.

It is the process's state, like its environment: functions and no object. All are for the thread of the event loop.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_PROCESSOR = 36
"""Where /proc/thread-self/stat has the processor (proc_pid_stat(5)), counted from the field after the name."""


@dataclass(slots=True)
class _State:
    threads: tuple[int, ...] = ()
    """Beside the loop's."""
    here: set[int] = field(default_factory=set)
    """The processor that they share now, if any."""
    everywhere: set[int] = field(default_factory=set)
    """Where they could run before."""


_state = _State()


def share(thread_ids: Iterable[int]) -> None:
    """Say who shares a processor with the event loop from now on. Numbers are the kernel's (gettid(2))."""
    part()
    _state.threads = tuple(thread_ids)


def is_shared() -> bool:
    """Whether the threads are kept on one processor now."""
    return bool(_state.here)


def gather() -> None:
    """Keep the threads where the caller runs. Does nothing without `share`, and where there is one processor."""
    if _state.here or not _state.threads:
        return
    _state.everywhere = os.sched_getaffinity(0)
    if len(_state.everywhere) == 1:
        return
    try:
        _state.here = {_processor()}
        for thread_id in (0, *_state.threads):
            os.sched_setaffinity(thread_id, _state.here)
    except OSError:  # a thread has ended, or a filter of the container's forbids it: it is a matter of speed alone
        share(())


def part() -> None:
    """Let the kernel place the threads again. One that somebody else has moved meanwhile stays. Idempotent."""
    here, _state.here = _state.here, set()
    if not here:
        return
    for thread_id in (0, *_state.threads):
        _let_go(thread_id, here)
    # From here on none is started that may run in one place alone, and those that were are listed.
    for name in os.listdir("/proc/self/task"):  # noqa: PTH208 - on the way to every start
        _let_go(int(name), here)


def _let_go(thread_id: int, here: set[int]) -> None:
    with contextlib.suppress(OSError):  # it has ended, or its processors were taken away
        if os.sched_getaffinity(thread_id) == here:
            os.sched_setaffinity(thread_id, _state.everywhere)


def _processor() -> int:
    return int(Path("/proc/thread-self/stat").read_bytes().rpartition(b")")[2].split()[_PROCESSOR])
