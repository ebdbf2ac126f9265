"""Launch thread: a single-threaded executor that starts processes and lives as long as this process.

A sandboxed process dies with the thread that started it (PR_SET_PDEATHSIG in prctl(2)), so that thread must not end
before. And a start takes 15 ms, which an event loop can't wait for.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class LaunchThread:
    """Does what it is given in that order, one thing at a time."""

    def __init__(self) -> None:
        """Start it."""
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="fumehood-launch", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], _Result]) -> Future[_Result]:
        """Have it done. One that has not begun can be cancelled."""
        result: Future[_Result] = Future()
        self._jobs.put((job, result))
        return result

    def run(self, job: Callable[[], _Result]) -> _Result:
        """Have it done and wait for it; at once if this is the launch thread."""
        if threading.current_thread() is self._thread:
            return job()
        return self.submit(job).result()

    def _serve(self) -> None:
        while True:
            job, result = self._jobs.get()
            if result.set_running_or_notify_cancel():
                try:
                    made = job()
                except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
                    result.set_exception(error)
                else:
                    result.set_result(made)
                    del made
            del job, result  # not kept until the next one


def launch_thread() -> LaunchThread:
    """The one of this process."""
    return _thread_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _thread_of(pid: int) -> LaunchThread:
    del pid  # a fork is another process, without this one's threads
    return LaunchThread()
