"""Runs calls, several at a time, with as few steps between a frame and its answer as can be.

One thread *leads*: it reads a frame and runs the call itself, so that a quick call is handed to nobody. The main thread
*watches*: when the leader is still in one call after a tick, it gives the lead to another thread, which reads on while
the first finishes its call and then stands by. A tool whose last call was slow hands the lead on before it starts. So a
slow call holds up nobody for longer than a tick, and a cancel frame is read while calls run.

Tried and left, with a small validated tool: one thread that reads and a pool that runs (twice the processor time a
call, half the rate at 32 in flight), handing the lead on before every call (twice the time, a fifth of the rate).
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
from fumehood_sdk.runtime.entry import Entry, Runnable
from fumehood_sdk.runtime.execute import execute
from fumehood_sdk.runtime.interrupt import interrupt
from fumehood_sdk.wire import host
from fumehood_sdk.wire import plugin as wire

if TYPE_CHECKING:
    from fumehood_sdk.runtime.aio import AsyncCalls
    from fumehood_sdk.runtime.host_port import HostPort
    from fumehood_sdk.runtime.writer import Writer
    from fumehood_sdk.wire.framing import FrameReader

TICK_S = 0.002
"""How long a call may keep the lead. Shorter costs more ticks, longer delays the calls behind a slow one."""
IDLE_TICKS = 5
"""Ticks without a call after which the watch sleeps until the next one: an idle worker must not use the processor."""
SLOW_S = 0.001
"""A call this long is worth handing the lead on for, which costs some 30 µs."""
INTERRUPT_AFTER_S = 0.25
"""A synchronous call that was told to end has this long, or half of its grace, to look at `ctx.cancelled`."""
SHORTEST_GRACE_S = 0.02
"""Under a shorter grace, if one was named, nothing is interrupted: what that takes the first time is 10 ms of the
processor, which the end of the process needs more."""
EOF_GRACE_S = 1.0
"""At the end of stdin nobody waits for results any more: as long as a tool may need to clean up."""

REASONS = {1: "deadline", 2: "caller", 3: "shutdown", 4: "limit"}


class Engine:
    """Serves the calls of one process until the stream of frames ends."""

    def __init__(
        self,
        reader: FrameReader,
        writer: Writer,
        tools: Mapping[str, Runnable],
        *,
        max_calls: int,
        grants: Grants,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._entries = {name: Entry(tool) for name, tool in tools.items()}
        self._grants = grants
        grants.host = self._host_port
        self._port: HostPort | None = None
        self._max_calls = max_calls
        self._calls: dict[int, Call] = {}
        self._ending: list[Call] = []
        """Calls whose results are being written."""
        self._async_calls: AsyncCalls | None = None
        self._stint: list[bool] = []
        """Not empty while the leader runs a call and still has the lead. Emptied by whoever takes the lead from it, or
        by the leader when it goes on: `list.pop` is atomic, so exactly one of them succeeds."""
        self._spares: list[Callable[[], None]] = []
        """What wakes each of the threads that stand by."""
        self._threads = 0
        self._spawning = threading.Lock()
        self._bell = threading.Lock()
        self._asleep = False
        self._interruptions: list[tuple[float, Call]] = []
        self._stop_at: float | None = None
        self._cancel_at: float | None = None
        self._error: WireError | None = None

    def run(self) -> WireError | None:
        """Serve until the stream ends or a shutdown is asked for. Returns what was wrong with the stream, if anything.

        Raises:
            RuntimeError: not even the first thread can be had.
        """
        if any(entry.is_async for entry in self._entries.values()):
            from fumehood_sdk.runtime.aio import AsyncCalls  # noqa: PLC0415 - asyncio takes as long as all the rest

            self._async_calls = AsyncCalls(self._end)
        self._bell.acquire()
        if not self._hand_on():
            raise RuntimeError("can't start a thread")
        self._watch()
        self._writer.drain()
        return self._error

    # The leader.

    def _thread(self, wake: threading.Lock) -> None:
        wake.acquire()
        while self._lead():
            self._spares.append(wake.release)
            wake.acquire()

    def _lead(self) -> bool:
        """Read frames and run calls until the lead is lost (True) or the stream has ended (False)."""
        reader = self._reader
        try:
            while True:
                data = reader.buffered()
                if data is None:
                    self._writer.flush()
                    if not reader.fill():
                        self._stop(time.monotonic() + EOF_GRACE_S, cancel_now=True)
                        return False
                    continue
                frame = host.decode(data)
                if isinstance(frame, host.Invoke):
                    if not self._invoke(frame):
                        return True
                elif frame is not None:
                    self._heed(frame)
        except (WireError, OSError) as error:
            self._error = error if isinstance(error, WireError) else WireError(str(error))
            self._stop(time.monotonic() + EOF_GRACE_S, cancel_now=True)
            return False

    def _heed(self, frame: host.HostFrame) -> None:
        """A frame that starts nothing."""
        if isinstance(frame, host.Cancel):
            self._cancel(frame)
        elif isinstance(frame, host.Shutdown):
            self._stop(time.monotonic() + frame.grace_s, cancel_now=False)
        elif isinstance(frame, host.Answer) and self._port is not None:
            self._port.deliver(frame)

    def _invoke(self, frame: host.Invoke) -> bool:
        """Start a call, and run it unless it waits its turn or is asynchronous. False: the lead was lost meanwhile."""
        entry = self._entries.get(frame.tool)
        if entry is None or len(self._calls) >= self._max_calls or frame.invocation_id in self._calls:
            self._refuse(frame)
            return True
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
            if self._async_calls is not None:
                self._async_calls.start(call)
            return True
        if entry.sequential and not entry.begin(call):
            return True
        if entry.slow and self._hand_on():
            self._run(call, hold=False)
            return False
        stint = [True]
        self._stint = stint
        if self._asleep:
            self._asleep = False
            self._ring()
        self._run(call, hold=True)
        try:
            stint.pop()
        except IndexError:
            self._writer.flush()
            return False
        return True

    def _run(self, call: Call, *, hold: bool) -> None:
        following: Call | None = call
        while following is not None:
            call = following
            entry: Entry = call.tool
            begun = time.monotonic()
            outcome = execute(call)
            entry.slow = time.monotonic() - begun > SLOW_S
            following = entry.following() if entry.sequential else None
            self._end(call, outcome, hold=hold and following is None)

    def _end(self, call: Call, outcome: wire.Sent | wire.Failure, *, hold: bool = False) -> None:
        # Its place is free before its result is out, since the sidecar may fill it at once; the process waits for both.
        self._ending.append(call)
        self._calls.pop(call.invocation_id, None)
        self._writer.finish(call, outcome, hold=hold)
        self._ending.remove(call)
        if self._stop_at is not None:
            self._ring()

    def _refuse(self, frame: host.Invoke) -> None:
        if frame.invocation_id in self._calls:
            self._writer.log(None, wire.ERROR, f"call {frame.invocation_id} was started twice: ignored", b"")
            return
        if frame.tool in self._entries:
            message, reason = f"{self._max_calls} calls are under way here already", "too_many_calls"
        else:
            message, reason = f"this plugin has no tool {frame.tool!r}", "unknown_tool"
        failure = wire.Failure(message, reason, retryable=reason == "too_many_calls")
        self._writer.finish(Call(frame.invocation_id, None, b"", self._writer), failure, hold=False)

    def _cancel(self, frame: host.Cancel) -> None:
        call = self._calls.get(frame.invocation_id)
        if call is not None:
            self._cancel_call(call, REASONS.get(frame.reason, "unspecified"), frame.grace_s)

    def _cancel_call(self, call: Call, reason: str, grace_s: float) -> None:
        if call.cancel_reason is not None:
            return  # an asynchronous tool that cleans up must not be cancelled again while it does
        entry: Entry = call.tool
        call.cancel(reason)
        if entry.is_async:
            if self._async_calls is not None:
                self._async_calls.cancel(call)
        elif entry.sequential and entry.withdraw(call):
            self._end(call, failures.cancelled(call))
        elif entry.tool.interruptible and not 0 < grace_s < SHORTEST_GRACE_S:
            self._interruptions.append((time.monotonic() + min(INTERRUPT_AFTER_S, max(0.0, grace_s) / 2), call))
            self._ring()

    # Requests of calls.

    def _host_port(self) -> HostPort:
        if self._port is None:
            from fumehood_sdk.runtime.host_port import HostPort  # noqa: PLC0415 - few plugins ask for anything

            with self._spawning:
                if self._port is None:
                    self._port = HostPort(self._writer, self._hand_over)
        return self._port

    def _hand_over(self) -> bool:
        """Before a call waits for an answer: if its thread leads, another must. False: none can be had.

        Any thread may ask. Where another one leads, that one loses the lead a little early.
        """
        stint = self._stint
        return not stint or self._take_lead(stint)

    # Threads.

    def _hand_on(self) -> bool:
        """Give the lead to another thread. False: none can be had."""
        wake = self._spare()
        if wake is None:
            return False
        wake()
        return True

    def _spare(self) -> Callable[[], None] | None:
        try:
            return self._spares.pop()
        except IndexError:
            pass
        with self._spawning:
            if self._threads > self._max_calls:
                return None
            wake = threading.Lock()
            wake.acquire()
            try:
                threading.Thread(target=self._thread, args=(wake,), name="fumehood", daemon=True).start()
            except RuntimeError:
                # The sandbox's limit on processes and threads. Those that there are have to do.
                return None
            self._threads += 1
            return wake.release

    # The watch, in the main thread.

    def _watch(self) -> None:
        idle_ticks = 0
        while not self._over():
            stint = self._stint
            if idle_ticks >= IDLE_TICKS and not self._waits_for_the_clock():
                self._asleep = True
                # Looked at again after the flag was set: a leader that starts a call now rings.
                if self._stint is stint and not stint and not self._waits_for_the_clock():
                    self._bell.acquire()
                self._asleep = False
                idle_ticks = 0
                continue
            self._bell.acquire(timeout=TICK_S)
            if stint is not self._stint:
                idle_ticks = 0
            elif stint:
                self._take_lead(stint)
            else:
                idle_ticks += 1
            self._act_on_what_is_due()

    def _take_lead(self, stint: list[bool]) -> bool:
        """Give the lead to a thread that stands by. False: there is none."""
        wake = self._spare()
        if wake is None:
            return False
        try:
            stint.pop()
        except IndexError:
            self._spares.append(wake)
            return True
        self._writer.flush()
        wake()
        return True

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _waits_for_the_clock(self) -> bool:
        return bool(self._interruptions) or self._stop_at is not None or self._cancel_at is not None

    def _act_on_what_is_due(self) -> None:
        now = time.monotonic()
        if self._cancel_at is not None and now >= self._cancel_at:
            self._cancel_at = None
            for call in list(self._calls.values()):
                self._cancel_call(call, "shutdown", (self._stop_at or now) - now)
        for due in list(self._interruptions):
            if now >= due[0] and (not due[1].unended or due[1].closed or self._interrupt(due[1])):
                self._interruptions.remove(due)

    def _interrupt(self, call: Call) -> bool:
        # A call that has no thread yet is about to get one; it looks at `cancelled` no sooner than that.
        return bool(call.thread_id) and interrupt(call, self._writer.lock)

    def _stop(self, stop_at: float, *, cancel_now: bool) -> None:
        """Have the process end once its calls have, and at `stop_at` at the latest."""
        now = time.monotonic()
        self._stop_at = stop_at if self._stop_at is None else min(stop_at, self._stop_at)
        self._cancel_at = now if cancel_now else now + (self._stop_at - now) / 2
        self._ring()

    def _over(self) -> bool:
        return self._stop_at is not None and (not (self._calls or self._ending) or time.monotonic() >= self._stop_at)
