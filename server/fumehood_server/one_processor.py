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
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_PROCESSOR = 36
"""Where /proc/thread-self/stat has the processor (proc_pid_stat(5)), counted from the field after the name."""


_LISTINGS = 8
"""A thread that was started meanwhile may start another before it is let go: they are listed until none is kept."""
_ALL = range(1024)
"""Every processor that Linux lets us name. Its mask is what it was before, where nobody has asked for a smaller one."""


@dataclass(slots=True)
class _State:
    threads: tuple[int, ...] = ()
    """The loop's and those that share with it."""
    here: set[int] = field(default_factory=set)
    """The processor that they share now, if any."""
    anywhere: Iterable[int] = ()
    """What they go back to."""


_state = _State()


def share(thread_ids: Iterable[int]) -> None:
    """Say who shares a processor with the event loop from now on, by the kernel's numbers (gettid(2)). None: nobody."""
    part()
    others = tuple(thread_ids)
    _state.threads = (threading.get_native_id(), *others) if others else ()


def is_shared() -> bool:
    """Whether the threads are kept on one processor now."""
    return bool(_state.here)


def gather() -> None:
    """Keep the threads where the caller runs. It is a matter of speed alone, so where it can't be nothing is done.

    That is without `share`, with one processor, where somebody keeps the threads in different places, and where a
    filter forbids it.
    """
    if _state.here or not _state.threads:
        return
    with contextlib.suppress(OSError):  # one has ended, or there are no descriptors left to ask where this one runs
        before = os.sched_getaffinity(0)
        if len(before) == 1 or any(os.sched_getaffinity(each) != before for each in _state.threads):
            return
        here = {_processor()}
        # What a thread asked for is remembered beyond a change of the cpuset (sched_setaffinity(2)). Whoever could run
        # anywhere has asked for nothing, and must not be left with what the cpuset happened to be.
        os.sched_setaffinity(0, _ALL)
        _state.anywhere = _ALL if os.sched_getaffinity(0) == before else before
        _state.here = here
        try:
            for thread_id in _state.threads:
                os.sched_setaffinity(thread_id, here)
        except OSError:
            part()


def part() -> None:
    """Let the kernel place the threads again. Idempotent, and never raises.

    One that somebody has moved meanwhile stays where it is, unless that is where all were.
    """
    here, _state.here = _state.here, set()
    if not here:
        return
    for thread_id in _state.threads:
        _let_go(thread_id, here, ours=True)
    for _ in range(_LISTINGS):
        if not sum(_let_go(thread_id, here, ours=False) for thread_id in _thread_ids()):
            return


def _let_go(thread_id: int, here: set[int], *, ours: bool) -> bool:
    """Returns whether it was kept and is not any more."""
    with contextlib.suppress(OSError):  # it has ended
        found = os.sched_getaffinity(thread_id)
        kept = found == here
        if kept or ours:
            os.sched_setaffinity(thread_id, _state.anywhere)
            moved = os.sched_getaffinity(thread_id) != found
            # Elsewhere than it was kept, it was moved by somebody, or its cpuset was, which lets it go nowhere else.
            if moved and not kept:
                os.sched_setaffinity(thread_id, found)
            return kept and moved
    return False


def _thread_ids() -> list[int]:
    with contextlib.suppress(OSError):  # no descriptors left: what was started meanwhile is let go another time
        return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208 - on the way to every start
    return []


def _processor() -> int:
    return int(Path("/proc/thread-self/stat").read_bytes().rpartition(b")")[2].split()[_PROCESSOR])
