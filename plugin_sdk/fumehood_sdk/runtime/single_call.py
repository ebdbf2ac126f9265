"""Serves one call in a process that was forked for it.

The call runs in the main thread, and no other thread is started as long as no more frames come: each would cost more
than the call's own frames do. When the sidecar sends one, a cancellation or the answer to a request, the kernel raises
SIGIO (F_SETOWN and O_ASYNC, fcntl(2)), and its handler starts the engine's threads.

A handler in Python runs between two steps of Python code: where the signal comes just before a system call that blocks,
it waits as long as that. A cancellation that is heard so late has the sidecar end the process. An answer must not be:
the threads are started before the request is sent.
"""

from __future__ import annotations

import _thread
import contextlib
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
from fumehood_sdk.runtime.engine import Engine
from fumehood_sdk.runtime.execute import execute_call
from fumehood_sdk.runtime.frame_writer import FrameWriter
from fumehood_sdk.runtime.registered_tool import Runnable
from fumehood_sdk.wire import sidecar_frames
from fumehood_sdk.wire.framing import FrameReader
from fumehood_sdk.wire.plugin_frames import Failure, Sent

if TYPE_CHECKING:
    from types import FrameType

    from fumehood_sdk.runtime.sidecar_calls import PipeSidecarCalls

_TERMINATED_STATUS = 143
"""128 and SIGTERM's number, as a shell counts. A process that is pid 1 must end itself: the kernel won't by default."""


def _exit_on_sigterm(_number: int, _frame: FrameType | None) -> None:
    os._exit(_TERMINATED_STATUS)


_masks = _thread._local()  # noqa: SLF001 - what `threading.local` is, without that module's import
"""The signal mask of each thread that is forking, from before the fork."""


def _block_sigterm() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))


def _restore_mask() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset_handlers() -> None:
    """Give a process that the author's code forked the dispositions of any process: `multiprocessing` relies on them.

    SIGTERM is blocked until then, since CPython forgets in the child what its handler heard until the fork is done; and
    a handler in Python waits as long as a system call that blocks just after the signal.
    """
    if signal.getsignal(signal.SIGTERM) is _exit_on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    _restore_mask()


class SingleCallEngine(Engine):
    """Engine of a process that serves one call and is killed."""

    def __init__(self, tools: Mapping[str, Runnable], grants: Grants, *, max_frame_bytes: int) -> None:
        """Made before the fork, once for all children."""
        self._fd_in = -1
        self._unthreaded: list[None] = [None]
        """Popped by whoever starts the threads."""
        self._monitored = False
        reader = FrameReader(lambda size: os.read(self._fd_in, size), max_frame_bytes)
        super().__init__(reader, FrameWriter(-1, max_frame_bytes), tools, max_calls=1, grants=grants)

    def prepare_for_fork(self) -> None:
        """Set the handlers that its process needs, and let the collector forget what is there. Before the fork."""
        signal.signal(signal.SIGTERM, _exit_on_sigterm)
        signal.signal(signal.SIGIO, self._on_sigio)
        gc.enable()
        gc.collect()
        gc.freeze()  # a collection in a child would write to every page of what was imported

    def serve(self) -> None:
        """Wait for one call on stdin, answer it on stdout, and wait to be killed. Returns if there is no call."""
        self._fd_in, fd_out = take_wire()
        close_in_forks(self._fd_in, fd_out)
        os.register_at_fork(before=_block_sigterm, after_in_parent=_restore_mask, after_in_child=_reset_handlers)
        self._writer.use_descriptor(fd_out)
        try:
            frame = self._read_invoke()
        except (WireError, OSError):
            return
        if frame is None:
            return
        self._run_invoke(frame)
        while True:  # the sidecar kills this process when it has the result
            signal.pause()

    def _read_invoke(self) -> sidecar_frames.Invoke | None:
        """Read up to the call. None: the sidecar has none for this process."""
        while True:
            data = self._reader.next_buffered_frame()
            if data is None:
                if not self._reader.fill_buffer():
                    return None
                continue
            frame = sidecar_frames.decode_frame(data)
            if isinstance(frame, sidecar_frames.Invoke):
                return frame
            if isinstance(frame, sidecar_frames.Shutdown):
                return None

    def _run_invoke(self, frame: sidecar_frames.Invoke) -> None:
        tool = self._find_tool(frame)
        if tool is None:
            self._refuse_call(frame)
            return
        call = self._register_call(frame, tool)
        if tool.is_async:
            from fumehood_sdk.runtime.aio import AsyncCalls  # noqa: PLC0415 - imported by the zygote if it is needed

            self._async_calls = AsyncCalls(self._finish_call, threaded=False)
            self._enable_sigio()
            self._async_calls.run_call(call)
        else:
            self._enable_sigio()
            self._finish_call(call, execute_call(call))

    def _finish_call(self, call: Call, outcome: Sent | Failure, *, may_wait: bool = False) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed or replaced by the author's code
                stream.flush()
        super()._finish_call(call, outcome, may_wait=may_wait)

    def _start_call(self, frame: sidecar_frames.Invoke) -> bool:
        self._refuse_call(frame)  # this process had its call
        return True

    # More frames than one.

    def _enable_sigio(self) -> None:
        """Have the kernel interrupt this thread when there is more to read, and look once: it may be there already."""
        fcntl.fcntl(self._fd_in, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._fd_in, fcntl.F_SETFL, os.O_ASYNC)  # and to block, as before
        if self._reader.has_buffered_bytes or _is_readable(self._fd_in):
            self._on_sigio()

    def _on_sigio(self, _number: int = signal.SIGIO, _frame: FrameType | None = None) -> None:
        """Start the engine's threads, once: the kernel says that there is more to read.

        A signal handler, which may interrupt this thread anywhere: takes no lock.
        """
        self._start_threads()

    def _start_threads(self) -> bool:
        """Start the engine's threads, once. False: there can be none now."""
        try:
            self._unthreaded.pop()
        except IndexError:
            return True
        try:
            _thread.start_new_thread(self._serve_with_threads, ())
        except RuntimeError:  # the limit of processes, or no stack left: the next signal tries again
            self._unthreaded.append(None)
            return False
        return True

    def _get_sidecar_calls(self) -> PipeSidecarCalls:
        if not self._start_threads():
            raise RuntimeError("no thread can be had to read the answer: raise the limit of processes")
        return super()._get_sidecar_calls()

    def _serve_with_threads(self) -> None:
        self._read_and_run()  # until the stream ends: the one call runs in the main thread, so nobody takes over

    def _wake_monitor(self) -> None:
        """Start the monitor the first time: most processes that are cancelled are killed before they need one."""
        if not self._monitored:
            self._monitored = True
            self._wakeup.acquire(blocking=False)
            try:
                _thread.start_new_thread(self._monitor, ())
            except RuntimeError:  # as above; without one, the sidecar ends the process
                self._monitored = False
        super()._wake_monitor()

    def _monitor(self) -> None:
        self._monitor_leader()
        self._writer.drain_results()
        os._exit(0)


def _is_readable(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))
