"""The signals that the sidecar takes: drain, reload, and those that ask for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator

from fumehood_server.telemetry import get_logger

_END = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_NO_ORDERS = (signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def orders(stop: asyncio.Event, hangup: asyncio.Event, flush: Callable[[], None]) -> Iterator[None]:
    """The first signal asks for the drain. The second ends the process by that signal: the kernel ends the workers.

    SIGHUP sets `hangup`. Signals of `_NO_ORDERS` would end it without a drain (signal(7)): they are logged, and nothing
    else.
    """
    loop = asyncio.get_running_loop()

    def asked_to_end(number: signal.Signals) -> None:
        if not stop.is_set():
            stop.set()
            return
        flush()
        # Not SIGQUIT, which would write the sidecar's memory to a core file.
        last = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        loop.remove_signal_handler(last)
        signal.signal(last, signal.SIG_DFL)
        os.kill(os.getpid(), last)

    def ignored(number: signal.Signals) -> None:
        get_logger().warning("signal_ignored", signal=number.name, message="it asks for nothing here")

    handlers = {**dict.fromkeys(_END, asked_to_end), **dict.fromkeys(_NO_ORDERS, ignored)}
    for each, handler in handlers.items():
        loop.add_signal_handler(each, handler, each)
    loop.add_signal_handler(signal.SIGHUP, hangup.set)
    try:
        yield
    finally:
        for each in (*handlers, signal.SIGHUP):
            loop.remove_signal_handler(each)
