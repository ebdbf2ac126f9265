"""Signals that end a command, raised where it waits, so that it can take back what it has begun."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Beside SIGINT, which Python raises itself."""


class SignalledError(KeyboardInterrupt):
    """The process was told to end."""

    def __init__(self, number: int) -> None:
        """`number`: the signal's."""
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `SignalledError` in the main thread. What was ignored, as by nohup(1), stays so."""
    before = {each: signal.getsignal(each) for each in _ENDING}
    try:
        for each, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(each, _raise)
        yield
    finally:
        for each, handler in before.items():
            if handler is not None:
                signal.signal(each, handler)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    raise SignalledError(number)
