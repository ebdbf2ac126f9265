"""Ignores everything that asks for its end, and has a child that left its session."""

import contextlib
import os
import signal
import sys
import time

from fumehood_sdk import Plugin

plugin = Plugin("stubborn", version="1.0.0", concurrency=32)


@plugin.tool(side_effects="none", isolation="call")
def hang() -> None:
    """Wait for ever."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    sys.stderr.write("grown\n")
    sys.stderr.flush()
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)
