"""Serves one call in a process that was forked for it.

The call runs in the main thread, and no other thread is there as long as nothing but the call happens: each would cost
the call more than its own frames do. When the sidecar has more to say, a cancellation or the answer to a request, the
kernel says so by a signal. A cancellation with no time to act on it is noted by the signal's handler, since most often
the processor is needed for the end of many; for all else the threads of the engine are started then.
"""

from __future__ import annotations

import _thread
import fcntl
import gc
import os
import select
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fumehood_sdk.call import Call, Grants
from fumehood_sdk.errors import WireError
from fumehood_sdk.runtime.descriptors import close_in_forks, take_wire
from fumehood_sdk.runtime.engine import REASONS, SHORTEST_GRACE_S, Engine
from fumehood_sdk.runtime.entry import Runnable
from fumehood_sdk.runtime.execute import execute
from fumehood_sdk.runtime.writer import Writer
from fumehood_sdk.wire import host
from fumehood_sdk.wire.framing import FrameReader
from fumehood_sdk.wire.plugin import Failure, Sent

if TYPE_CHECKING:
    from types import FrameType

_READ_BYTES = 4000
"""What malloc has at hand: for much more it asks the kernel, and the page where its memory ends is written to."""
_FIONREAD = 0x541B
"""Source: include/uapi/asm-generic/ioctls.h. How many bytes can be read: asked on the path of each call, since it takes
no object. It says nothing of the end of the stream, as `_has_more` does; who closes it kills this process."""
_NOTHING = bytes(4)
_TERMINATED_STATUS = 143
"""128 and SIGTERM's number, as a shell counts. A process that is pid 1 must end itself: the kernel won't by default."""


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(_TERMINATED_STATUS)


class OneCall(Engine):
    """The engine of a process with one call."""

    def __init__(self, tools: Mapping[str, Runnable], grants: Grants, *, max_frame_bytes: int) -> None:
        """Made before the fork: what is there already, no child has to make."""
        self._fd_in = -1
        self._threaded = False
        self._reading = self._missed = False
        reader = FrameReader(lambda size: os.read(self._fd_in, size), max_frame_bytes, read_bytes=_READ_BYTES)
        super().__init__(reader, Writer(-1, max_frame_bytes), tools, max_calls=1, grants=grants)

    def has_threads(self) -> bool:
        """Whether there are other threads than the call's."""
        return self._threaded

    def prepare(self) -> None:
        """Set the handlers that its process needs, and let the collector forget what is there. Before the fork."""
        signal.signal(signal.SIGTERM, _end)
        signal.signal(signal.SIGIO, self.more_came)
        gc.enable()
        gc.collect()
        gc.freeze()  # a collection in a child would write to every page of what was imported

    def serve(self) -> None:
        """Wait for one call on stdin, answer it on stdout, and wait to be killed. Comes back if there is no call."""
        fd_in, fd_out = take_wire()
        close_in_forks(fd_in, fd_out)
        self.use(fd_in, fd_out)
        self.run()

    def use(self, fd_in: int, fd_out: int) -> None:
        """Read and write these."""
        self._fd_in = fd_in
        self._writer.use(fd_out)

    def run(self) -> WireError | None:
        """Serve the call. Comes back only without one."""
        try:
            frame = self.first()
        except (WireError, OSError) as error:
            return error if isinstance(error, WireError) else WireError(str(error))
        if frame is None:
            return None
        self.answer(frame)
        while True:  # the sidecar kills this process when it has the result
            signal.pause()

    def first(self) -> host.Invoke | None:
        """The call. None: the sidecar wants none."""
        while True:
            data = self._reader.buffered()
            if data is None:
                if not self._reader.fill():
                    return None
                continue
            frame = host.decode(data)
            if isinstance(frame, host.Invoke):
                return frame
            if isinstance(frame, host.Shutdown):
                return None

    def answer(self, frame: host.Invoke) -> None:
        """Run it."""
        entry = self._entries.get(frame.tool)
        if entry is None:
            self._refuse(frame)
            return
        call = Call(
            frame.invocation_id,
            entry,
            frame.arguments_json,
            self._writer,
            call_id=frame.call_id,
            attempt=frame.attempt or 1,
            timeout_s=frame.timeout_s,
            context=frame.context,
            grants=self._grants,
        )
        self._calls[frame.invocation_id] = call
        if entry.is_async:
            from fumehood_sdk.runtime.aio import AsyncCalls  # noqa: PLC0415 - imported by the zygote if it is needed

            self._async_calls = AsyncCalls(self._end, threaded=False)
            self._heed_more()
            self._async_calls.run(call)
        else:
            self._heed_more()
            self._end(call, execute(call))

    def _end(self, call: Call, outcome: Sent | Failure, *, hold: bool = False) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:  # noqa: SIM105 - contextlib would be three functions more, in pages of their own
                stream.flush()
            except Exception:  # noqa: BLE001, S110 - closed or replaced by the author's code
                pass
        super()._end(call, outcome, hold=hold)

    def _invoke(self, frame: host.Invoke) -> bool:
        self._refuse(frame)  # this process had its call
        return True

    # More frames than one.

    def _heed_more(self) -> None:
        """Have the kernel interrupt this thread when there is more to read, and look once: it may be there already."""
        fcntl.fcntl(self._fd_in, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._fd_in, fcntl.F_SETFL, os.O_ASYNC)  # and to block, as before
        if self._reader.holds_more or fcntl.ioctl(self._fd_in, _FIONREAD, _NOTHING) != _NOTHING:
            self.more_came()

    def more_came(self, _number: int = signal.SIGIO, _frame: FrameType | None = None) -> None:
        """Note a cancellation, or start the engine's threads, once. May interrupt this thread anywhere: takes no lock.

        What the kernel calls when there is more to read.
        """
        while not self._threaded:
            if self._reading:
                self._missed = True  # this interrupts itself, and goes on below
                return
            self._reading, self._missed = True, False
            noted = False
            try:
                noted = self._noted()
            finally:
                # Whatever was raised, by a full stack or by a handler of the author's, somebody must read on.
                self._reading = False
                if not noted:
                    self._threaded = True
                    try:
                        _thread.start_new_thread(self._serve_rest, ())
                    except RuntimeError:  # the limit of processes, or no stack left: the sidecar ends who is deaf
                        self._threaded = False
            if not (noted and self._missed):
                return

    def _noted(self) -> bool:
        """Read what came. False: there is more to it than a mark on the call, and threads must see to it.

        What can't be noted is left where it was, whatever is raised meanwhile.
        """
        if self._threaded:
            return True  # by one that interrupted `more_came` before it said that it reads
        if self._port is not None:
            return False  # answers may be large, and are waited for with locks
        reader = self._reader
        try:
            while reader.holds_more or _has_more(self._fd_in):
                begin = reader.position
                data = reader.buffered()
                if data is None:
                    if not reader.fill():
                        return False
                    continue
                noted = False
                try:
                    frame = host.decode(data)
                    noted = frame is None or self._note(frame)
                finally:
                    if not noted:
                        reader.position = begin
                if not noted:
                    return False
        except WireError:
            return False
        return True

    def _note(self, frame: host.HostFrame) -> bool:
        if not isinstance(frame, host.Cancel) or not 0 < frame.grace_s < SHORTEST_GRACE_S:
            return False
        call = self._calls.get(frame.invocation_id)
        if call is None:
            return True
        if call.wakers or call.tool.is_async:
            return False  # what waits is woken by locks, which this thread may hold
        call.cancel(REASONS.get(frame.reason, "unspecified"))
        return True

    def _serve_rest(self) -> None:
        self._bell.acquire()
        if self._hand_on():
            self._watch()
            self._writer.drain()
            os._exit(0)


def _has_more(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))
