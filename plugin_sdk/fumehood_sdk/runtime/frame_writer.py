"""Writes frames to the sidecar from several threads, each frame whole."""

from __future__ import annotations

import os
import threading

from fumehood_sdk.call import Call
from fumehood_sdk.runtime import failures
from fumehood_sdk.wire import plugin_frames

BATCH_FRAMES = 8
"""Results that are written together while more calls are buffered: one write(2) costs as much as a call."""
DRAIN_TIMEOUT_S = 1.0
"""Bound of writing at the end: a sidecar that has left the pipe full for so long does not read any more."""
BATCH_BYTES = 32768
"""Half of a pipe's capacity, so that a batch is written by one write(2)."""


class FrameWriter:
    """Owns the descriptor of the pipe. The `CallSink` of every call of this process."""

    __slots__ = ("_fd", "_pending", "_pending_bytes", "broken", "lock", "max_frame_bytes")

    def __init__(self, fd: int, max_frame_bytes: int) -> None:
        self._fd = fd
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.max_frame_bytes = max_frame_bytes
        self.broken = False
        """Whether the sidecar has gone. What is written from then on is dropped."""
        self.lock = threading.Lock()
        """Held for each frame. Who holds it may interrupt another thread: that one is not within a write then.

        A thread that is interrupted while it waits for the lock has the exception raised at its next call of a Python
        function. Hence the writes below happen in functions of their own.
        """

    def use_descriptor(self, fd: int) -> None:
        """Write to this descriptor from now on."""
        self._fd = fd

    def write_result(self, call: Call, outcome: plugin_frames.Sent | plugin_frames.Failure, *, may_wait: bool) -> None:
        """Write a call's result; nothing of the call is written afterwards.

        With `may_wait` it is written with the next few, or by `flush_results`.
        """
        if isinstance(outcome, plugin_frames.Failure):
            body = plugin_frames.encode_failure(call.invocation_id, outcome)
        else:
            content, details_json, terminate = outcome
            body = plugin_frames.encode_result(call.invocation_id, content, details_json, terminate=terminate)
        size = plugin_frames.frame_size_bytes(body)
        if size > self.max_frame_bytes:
            body = plugin_frames.encode_failure(
                call.invocation_id, failures.output_too_large(size, self.max_frame_bytes)
            )
        frame = plugin_frames.delimited_frame(plugin_frames.RESULT, body)
        if call.recording is not None:
            frame = call.recording.take_frames() + frame
        with self.lock:
            call.closed = True
            self._pending.append(frame)
            self._pending_bytes += len(frame)
            if not may_wait or len(self._pending) >= BATCH_FRAMES or self._pending_bytes >= BATCH_BYTES:
                self._write_pending()

    def flush_results(self) -> None:
        """Write the results that wait."""
        if self._pending:
            with self.lock:
                self._write_pending()

    def drain_results(self) -> None:
        """Write the results that wait, after what another thread is writing: the last step before the process ends."""
        if self.lock.acquire(timeout=DRAIN_TIMEOUT_S):
            try:
                self._write_pending()
            finally:
                self.lock.release()

    def write_ready(self, body: bytes) -> None:
        """Write the answer to `Hello`.

        Raises:
            ValueError: it does not fit into a frame.
        """
        size = plugin_frames.frame_size_bytes(body)
        if size > self.max_frame_bytes:
            raise ValueError(f"the tools' definitions take {size} bytes and {self.max_frame_bytes} are allowed")
        with self.lock:
            self._write(plugin_frames.delimited_frame(plugin_frames.READY, body))

    def write_update(
        self,
        call: Call,
        message: str,
        progress: float | None,
        total: float | None,
        data_json: bytes,
        *,
        unit: str = "",
    ) -> None:
        """Write an update of a call that has not ended.

        Raises:
            ValueError: it does not fit into a frame.
        """
        body = plugin_frames.encode_update(call.invocation_id, message, progress, total, data_json, unit=unit)
        size = plugin_frames.frame_size_bytes(body)
        if size > self.max_frame_bytes:
            raise ValueError(f"the update takes {size} bytes and {self.max_frame_bytes} are allowed")
        with self.lock:
            if not call.closed:
                self._write(plugin_frames.delimited_frame(plugin_frames.UPDATE, body))

    def write_values(self, call: Call, frames: bytes) -> None:
        """Write what a call has recorded."""
        with self.lock:
            if not call.closed:
                self._write(frames)

    def write_request(self, call: Call, tag: int, body: bytes) -> None:
        """Write what a call asks of the sidecar.

        Raises:
            ValueError: it does not fit into a frame.
            RuntimeError: the call has ended.
        """
        size = plugin_frames.frame_size_bytes(body)
        if size > self.max_frame_bytes:
            raise ValueError(f"the request takes {size} bytes and {self.max_frame_bytes} are allowed")
        with self.lock:
            if call.closed:
                raise RuntimeError("the call has ended: nothing more is done for it")
            self._write(plugin_frames.delimited_frame(tag, body))

    def write_log(self, call: Call | None, level: int, message: str, fields_json: bytes) -> None:
        """Write a line to the log, without its fields where those don't fit into a frame."""
        with self.lock:
            invocation_id = 0 if call is None or call.closed else call.invocation_id
            body = plugin_frames.encode_log(invocation_id, level, message, fields_json)
            if plugin_frames.frame_size_bytes(body) > self.max_frame_bytes:
                body = plugin_frames.encode_log(invocation_id, level, message, b"")
            self._write(plugin_frames.delimited_frame(plugin_frames.LOG, body))

    def _write_pending(self) -> None:
        if self._pending:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._pending.clear()
            self._pending_bytes = 0
            self._write_all(data)

    def _write(self, frame: bytes) -> None:
        """Write a frame behind the results that wait, since frames of one call must not overtake each other."""
        self._write_pending()
        self._write_all(frame)

    def _write_all(self, data: bytes) -> None:
        if self.broken:
            return
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                # A view costs nothing to shorten; bytes would be copied with each piece that the pipe takes.
                view = memoryview(data)[written:]
                written += os.write(self._fd, view)
        except OSError:
            self.broken = True
