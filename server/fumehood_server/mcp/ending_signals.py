"""SIGINT, SIGTERM and SIGHUP as one cancellation of a task, so that what it holds is torn down in its own order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndingSignal:
    """Which signal has come first."""

    __slots__ = ("_task", "number")

    def __init__(self, task: asyncio.Future[None]) -> None:
        """None has: `number` is 0."""
        self._task = task
        self.number = 0

    def come(self, number: int) -> None:
        """Cancel the task, once: a second cancellation would cut its end short."""
        if not self.number:
            self.number = number
            self._task.cancel()


@contextlib.contextmanager
def ending_signals(task: asyncio.Future[None]) -> Iterator[EndingSignal]:
    """Cancel the task at such a signal, within the block. What was ignored, as by nohup(1), stays so."""
    loop = asyncio.get_running_loop()
    ending = EndingSignal(task)
    before = {each: signal.getsignal(each) for each in _ENDING}
    taken = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for each in taken:
        loop.add_signal_handler(each, ending.come, each)
    try:
        yield ending
    finally:
        for each in taken:
            loop.remove_signal_handler(each)
            signal.signal(each, before[each])


__all__ = ["EndingSignal", "ending_signals"]
