"""Runs calls of nothing before the first fork, so that children find everything warm.

Python rewrites its own code as it runs it, fills caches of types and methods, and binds names of C: what was done
before the fork, no child does again, in pages that it would have to copy for that.
"""

from __future__ import annotations

import os
import signal
import sys

from fumehood_sdk.call import Grants
from fumehood_sdk.plugin import Plugin
from fumehood_sdk.runtime.one_call import OneCall
from fumehood_sdk.schema.core import to_json

_TIMES = 20
"""Code is rewritten after eight runs; some of it waits for a second pass."""
_FRAME_BYTES = 65536
_INVOKE = b"\x08\x01" + b"\x12\x04echo" + b'\x1a\x0d{"text":"aa"}' + b"\x22\x01c" + b"\x28\x01" + b"\x32\x02\x08\x1e"
"""`Invoke{1, "echo", {"text":"aa"}, "c", attempt 1, 30 s}`."""
_CANCEL = b"\x08\x01" + b"\x10\x01" + b"\x1a\x05\x10\x80\xad\xe2\x04"
"""`Cancel{1, deadline, 10 ms}`."""
_INVOKE_TAG, _CANCEL_TAG = 0x12, 0x1A


def rehearse() -> None:
    """Serve a tool of our own, over pipes of our own. None of the author's code runs."""
    if "pydantic" in sys.modules:
        to_json("")  # it looks for each type that it knows, and imports them; plain types are written without it
    plugin = Plugin("rehearsal", version="0")

    @plugin.tool(side_effects="none")
    def echo(text: str) -> str:
        """Say the same, after being told to end."""
        os.write(calls, _frame(_CANCEL_TAG, _CANCEL))
        one_call.more_came()
        return text

    one_call = OneCall(plugin.tools, Grants(), max_frame_bytes=_FRAME_BYTES)
    (fd_in, calls), (results, fd_out) = os.pipe(), os.pipe()
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent for each of our own writes
    try:
        one_call.use(fd_in, fd_out)
        for _ in range(_TIMES):
            os.write(calls, _frame(_INVOKE_TAG, _INVOKE))
            frame = one_call.first()
            if frame is not None:
                one_call.answer(frame)
                os.read(results, _FRAME_BYTES)
        if one_call.has_threads():
            raise AssertionError("a thread was started, which no child would have")
    finally:
        for fd in (fd_in, calls, results, fd_out):
            os.close(fd)


def _frame(tag: int, message: bytes) -> bytes:
    return bytes((len(message) + 2, tag, len(message))) + message
