"""Runs calls by the Leader/Followers pattern: one thread at a time reads frames, and runs each call itself.

A quick call is handed to no other thread. While the *leader* runs a call it holds a *lease* on the leadership; the main
thread monitors it, and revokes the lease of a call that takes longer than a tick: a standby thread reads on, and the
former leader stands by when its call is finished. A tool whose last call was slow passes the leadership on before it
starts. So a slow call holds up the others for a tick at most, and a cancel frame is read while calls run.

docs/decisions/sdk-leader-followers.md has what else was tried.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fumehood_sdk.call import Call, Grants
from fumehood_sdk.errors import WireError
from fumehood_sdk.runtime import failures
from fumehood_sdk.runtime.execute import execute_call
from fumehood_sdk.runtime.hello import CANCEL_REASONS
from fumehood_sdk.runtime.interrupt import interrupt_call
from fumehood_sdk.runtime.registered_tool import RegisteredTool, Runnable
from fumehood_sdk.wire import plugin_frames, sidecar_frames
from fumehood_sdk.wire.sidecar_answers import Answer

if TYPE_CHECKING:
    from fumehood_sdk.runtime.aio import AsyncCalls
    from fumehood_sdk.runtime.frame_writer import FrameWriter
    from fumehood_sdk.runtime.sidecar_calls import PipeSidecarCalls
    from fumehood_sdk.wire.framing import FrameReader
    from fumehood_sdk.wire.recorded_values import RecordedValue

TICK_S = 0.002
"""How long a call may hold its lease. Shorter costs more ticks, longer delays the calls behind a slow one."""
IDLE_TICKS = 5
"""Ticks without a call after which the monitor sleeps until the next one: an idle worker must not use the processor."""
SLOW_S = 0.001
"""A call this long is worth a change of leadership, which costs some 30 µs."""
INTERRUPT_AFTER_S = 0.25
"""A synchronous call that was told to end has this long, or half of its grace, to look at `ctx.cancelled`."""
SHORTEST_GRACE_S = 0.02
"""Under a shorter grace, if one was named, nothing is interrupted: importing ctypes for it takes 10 ms of processor
time, which the end of the process needs more."""
EOF_GRACE_S = 1.0
"""From the end of stdin, when no result can be delivered any more, to the end of the process: time to clean up."""


class Engine:
    """Serves the calls of one process until the stream of frames ends."""

    def __init__(
        self,
        reader: FrameReader,
        writer: FrameWriter,
        tools: Mapping[str, Runnable],
        *,
        max_calls: int,
        grants: Grants,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tools = {name: RegisteredTool(tool) for name, tool in tools.items()}
        self._preparations = {
            name: RegisteredTool(tool.preparation) for name, tool in tools.items() if tool.preparation is not None
        }
        self._grants = grants
        grants.sidecar = self._get_sidecar_calls
        self._sidecar_calls: PipeSidecarCalls | None = None
        self._max_calls = max_calls
        self._calls: dict[int, Call] = {}
        self._writing: list[Call] = []
        """Calls whose results are being written, and which the end of the process waits for."""
        self._async_calls: AsyncCalls | None = None
        self._lease: list[bool] = []
        """Not empty while the leader runs a call and still leads. Emptied by whoever revokes it, or by the leader that
        reads on: `list.pop` is atomic, so exactly one of them succeeds."""
        self._standby: list[Callable[[], None]] = []
        """Wakes each of the standby threads."""
        self._threads = 0
        self._threads_lock = threading.Lock()
        self._wakeup = threading.Lock()
        self._monitor_sleeps = False
        self._interruptions: list[tuple[float, Call]] = []
        self._stop_at: float | None = None
        self._cancel_at: float | None = None
        self._error: WireError | None = None

    def run(self) -> WireError | None:
        """Serve until the stream ends or a shutdown is asked for. Returns what was wrong with the stream, if anything.

        Raises:
            RuntimeError: not even the first thread can be had.
        """
        if any(tool.is_async for tool in self._tools.values()):
            from fumehood_sdk.runtime.aio import AsyncCalls  # noqa: PLC0415 - asyncio takes as long as all the rest

            self._async_calls = AsyncCalls(self._finish_call)
        self._wakeup.acquire()
        if not self._pass_leadership():
            raise RuntimeError("can't start a thread")
        self._monitor_leader()
        self._writer.drain_results()
        return self._error

    # The leader.

    def _run_thread(self, wake: threading.Lock) -> None:
        wake.acquire()
        while self._read_and_run():
            self._standby.append(wake.release)
            wake.acquire()

    def _read_and_run(self) -> bool:
        """Read frames and run calls until the leadership is lost (True) or the stream has ended (False)."""
        reader = self._reader
        try:
            while True:
                data = reader.next_buffered_frame()
                if data is None:
                    self._writer.flush_results()
                    if not reader.fill_buffer():
                        self._begin_shutdown(time.monotonic() + EOF_GRACE_S, cancel_now=True)
                        return False
                    continue
                frame = sidecar_frames.decode_frame(data)
                if isinstance(frame, sidecar_frames.Invoke):
                    if not self._start_call(frame):
                        return True
                elif frame is not None:
                    self._handle_frame(frame)
        except (WireError, OSError) as error:
            self._error = error if isinstance(error, WireError) else WireError(str(error))
            self._begin_shutdown(time.monotonic() + EOF_GRACE_S, cancel_now=True)
            return False

    def _handle_frame(self, frame: sidecar_frames.HostFrame) -> None:
        """Handle a frame that is no `Invoke`."""
        if isinstance(frame, sidecar_frames.Cancel):
            self._handle_cancel(frame)
        elif isinstance(frame, sidecar_frames.Shutdown):
            self._begin_shutdown(time.monotonic() + frame.grace_s, cancel_now=False)
        elif isinstance(frame, Answer) and self._sidecar_calls is not None:
            self._sidecar_calls.deliver_answer(frame)

    def _start_call(self, frame: sidecar_frames.Invoke) -> bool:
        """Start a call, and run it unless it is queued or asynchronous. False: the leadership was lost meanwhile."""
        tool = self._find_tool(frame)
        if tool is None or len(self._calls) >= self._max_calls or frame.invocation_id in self._calls:
            self._refuse_call(frame)
            return True
        call = self._register_call(frame, tool)
        if tool.is_async:
            if self._async_calls is not None:
                self._async_calls.start_call(call)
            return True
        if tool.sequential and not tool.run_or_queue(call):
            return True
        if tool.slow and self._pass_leadership():
            self._run_call(call, may_wait=False)
            return False
        lease = [True]
        self._lease = lease
        if self._monitor_sleeps:
            self._monitor_sleeps = False
            self._wake_monitor()
        self._run_call(call, may_wait=True)
        try:
            lease.pop()
        except IndexError:
            self._writer.flush_results()
            return False
        return True

    def _find_tool(self, frame: sidecar_frames.Invoke) -> RegisteredTool | None:
        return (self._preparations if frame.prepares else self._tools).get(frame.tool)

    def _register_call(self, frame: sidecar_frames.Invoke, tool: RegisteredTool) -> Call:
        call = Call(
            frame.invocation_id,
            tool,
            frame.arguments_json,
            self._writer,
            call_id=frame.call_id,
            attempt=frame.attempt or 1,
            timeout_s=frame.timeout_s,
            context=frame.context,
            grants=self._grants,
            max_recorded_bytes=frame.max_recorded_bytes,
            replay=None if frame.replay is None else _decode_replay(frame.replay),
            trace=(frame.traceparent, frame.tracestate),
        )
        self._calls[frame.invocation_id] = call
        return call

    def _run_call(self, call: Call, *, may_wait: bool) -> None:
        following: Call | None = call
        while following is not None:
            call = following
            tool: RegisteredTool = call.tool
            begun = time.monotonic()
            outcome = execute_call(call)
            tool.slow = time.monotonic() - begun > SLOW_S
            following = tool.next_queued() if tool.sequential else None
            self._finish_call(call, outcome, may_wait=may_wait and following is None)

    def _finish_call(
        self, call: Call, outcome: plugin_frames.Sent | plugin_frames.Failure, *, may_wait: bool = False
    ) -> None:
        # The sidecar may send the next call as soon as it has the result, so the call is taken off the table before.
        self._writing.append(call)
        self._calls.pop(call.invocation_id, None)
        self._writer.write_result(call, outcome, may_wait=may_wait)
        self._writing.remove(call)
        if self._stop_at is not None:
            self._wake_monitor()

    def _refuse_call(self, frame: sidecar_frames.Invoke) -> None:
        if frame.invocation_id in self._calls:
            self._writer.write_log(
                None, plugin_frames.ERROR, f"call {frame.invocation_id} was started twice: ignored", b""
            )
            return
        if frame.tool in self._tools:
            message, reason = f"{self._max_calls} calls are under way here already", "too_many_calls"
        else:
            message, reason = f"this plugin has no tool {frame.tool!r}", "unknown_tool"
        failure = plugin_frames.Failure(message, reason, retryable=reason == "too_many_calls")
        self._writer.write_result(Call(frame.invocation_id, None, b"", self._writer), failure, may_wait=False)

    def _handle_cancel(self, frame: sidecar_frames.Cancel) -> None:
        call = self._calls.get(frame.invocation_id)
        if call is not None:
            self._cancel_call(call, CANCEL_REASONS.get(frame.reason, "unspecified"), frame.grace_s)

    def _cancel_call(self, call: Call, reason: str, grace_s: float) -> None:
        if call.cancel_reason is not None:
            return  # an asynchronous tool that cleans up must not be cancelled again while it does
        tool: RegisteredTool = call.tool
        call.cancel(reason)
        if tool.is_async:
            if self._async_calls is not None:
                self._async_calls.cancel_call(call)
        elif tool.sequential and tool.remove_queued(call):
            self._finish_call(call, failures.cancelled_failure(call))
        elif tool.runnable.interruptible and not 0 < grace_s < SHORTEST_GRACE_S:
            self._interruptions.append((time.monotonic() + min(INTERRUPT_AFTER_S, max(0.0, grace_s) / 2), call))
            self._wake_monitor()

    # Requests of calls to the sidecar.

    def _get_sidecar_calls(self) -> PipeSidecarCalls:
        if self._sidecar_calls is None:
            from fumehood_sdk.runtime.sidecar_calls import PipeSidecarCalls  # noqa: PLC0415 - few plugins ask for anything

            with self._threads_lock:
                if self._sidecar_calls is None:
                    self._sidecar_calls = PipeSidecarCalls(self._writer, self._ensure_reader)
        return self._sidecar_calls

    def _ensure_reader(self) -> bool:
        """Have another thread read while a call waits for an answer. False: none can be had.

        Any thread may ask. Where another one leads, that one's lease ends a little early.
        """
        lease = self._lease
        return not lease or self._revoke_lease(lease)

    # Threads.

    def _pass_leadership(self) -> bool:
        """Wake another thread as the leader. False: none can be had."""
        wake = self._claim_standby()
        if wake is None:
            return False
        wake()
        return True

    def _claim_standby(self) -> Callable[[], None] | None:
        """Take a standby thread, or start one. Returns what wakes it; None: no thread can be had."""
        try:
            return self._standby.pop()
        except IndexError:
            pass
        with self._threads_lock:
            if self._threads > self._max_calls:
                return None
            wake = threading.Lock()
            wake.acquire()
            try:
                threading.Thread(target=self._run_thread, args=(wake,), name="fumehood", daemon=True).start()
            except RuntimeError:
                # The sandbox's limit on processes and threads: those that run have to do.
                return None
            self._threads += 1
            return wake.release

    # The monitor, in the main thread.

    def _monitor_leader(self) -> None:
        idle_ticks = 0
        while not self._has_ended():
            lease = self._lease
            if idle_ticks >= IDLE_TICKS and not self._has_timers():
                self._monitor_sleeps = True
                # Looked at again after the flag was set: a leader that starts a call from now on wakes this thread.
                if self._lease is lease and not lease and not self._has_timers():
                    self._wakeup.acquire()
                self._monitor_sleeps = False
                idle_ticks = 0
                continue
            self._wakeup.acquire(timeout=TICK_S)
            if lease is not self._lease:
                idle_ticks = 0
            elif lease:
                self._revoke_lease(lease)
            else:
                idle_ticks += 1
            self._run_due_actions()

    def _revoke_lease(self, lease: list[bool]) -> bool:
        """Make a standby thread the leader in place of the one that runs a call. False: no thread can be had."""
        wake = self._claim_standby()
        if wake is None:
            return False
        try:
            lease.pop()
        except IndexError:
            self._standby.append(wake)
            return True
        self._writer.flush_results()
        wake()
        return True

    def _wake_monitor(self) -> None:
        with contextlib.suppress(RuntimeError):  # released already
            self._wakeup.release()

    def _has_timers(self) -> bool:
        return bool(self._interruptions) or self._stop_at is not None or self._cancel_at is not None

    def _run_due_actions(self) -> None:
        now = time.monotonic()
        if self._cancel_at is not None and now >= self._cancel_at:
            self._cancel_at = None
            for call in list(self._calls.values()):
                self._cancel_call(call, "shutdown", (self._stop_at or now) - now)
        for due in list(self._interruptions):
            if now >= due[0] and (not due[1].end_claim or due[1].closed or self._try_interrupt(due[1])):
                self._interruptions.remove(due)

    def _try_interrupt(self, call: Call) -> bool:
        # A call that has no thread yet gets one soon, and can't be interrupted before.
        return bool(call.thread_id) and interrupt_call(call, self._writer.lock)

    def _begin_shutdown(self, stop_at: float, *, cancel_now: bool) -> None:
        """Have the process end once its calls have, and at `stop_at` at the latest."""
        now = time.monotonic()
        self._stop_at = stop_at if self._stop_at is None else min(stop_at, self._stop_at)
        self._cancel_at = now if cancel_now else now + (self._stop_at - now) / 2
        self._wake_monitor()

    def _has_ended(self) -> bool:
        return self._stop_at is not None and (not (self._calls or self._writing) or time.monotonic() >= self._stop_at)


def _decode_replay(data: bytes) -> list[RecordedValue]:
    from fumehood_sdk.wire.recorded_values import decode_replay  # noqa: PLC0415 - calls are seldom replayed

    return decode_replay(data)
