"""The frames to and from one process: what was read is cut, parsed and handed on, a bounded number in each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fumehood.v1 import plugin_pb2
from google.protobuf.message import DecodeError

from fumehood_server.workers.faults import Violation
from fumehood_server.workers.process.nobody import nobody
from fumehood_server.workers.wire import FrameDecoder, FrameError
from fumehood_server.workers.wire.pipes import PipeReader, PipeWriter

if TYPE_CHECKING:
    from fumehood_server.workers.settings import WorkerSettings

FRAMES_PER_TURN = 64
"""A full pipe can hold thousands of tiny frames. After this many, everybody else has a turn (about 0.2 ms)."""

_PRINTED = "most often something was printed to stdout, which is the wire: print to stderr"


class Channel:
    """Both directions of the wire to one process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        stdin: int,
        stdout: int,
        settings: WorkerSettings,
        on_frame: Callable[[plugin_pb2.PluginFrame, int], None],
        on_fault: Callable[[Violation, str], None],
    ) -> None:
        """`on_frame` gets each frame and its size in bytes.

        `on_fault` is told of a stream that is not one of frames, and of a closed pipe (`STDIN_CLOSED`,
        `STDOUT_CLOSED`); whether that is a fault or just the process's exit is for the owner to find out.
        """
        self._loop = loop
        self._stall_s = settings.frame_stall_s
        self._on_frame = on_frame
        self._on_fault = on_fault
        self._decoder = FrameDecoder(settings.max_frame_bytes)
        self._frames: Iterator[bytes] = iter(())
        self._stall_timer: asyncio.TimerHandle | None = None
        self._writer = PipeWriter(loop, stdin, self._stdin_closed)
        self._reader = PipeReader(loop, stdout, self._readable, self._stdout_closed)
        self.send = self._writer.send
        self.drained = self._writer.drained

    @property
    def ended(self) -> bool:
        """Whether nothing more will be handed on."""
        return self._reader.ended

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return self._decoder.pending_bytes > 0

    @property
    def queued_bytes(self) -> int:
        """Bytes that were ever sent or wait to be."""
        return self._writer.queued_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes that the kernel took for the process."""
        return self._writer.written_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the process to read."""
        return self._writer.unsent_bytes

    def stop(self) -> None:
        """Hand on nothing more and send nothing more. Must come before the descriptors are closed. Idempotent."""
        self._reader.stop()
        self._writer.stop()
        self._frames = iter(())
        self._on_frame = nobody
        self._stop_stall_timer()

    def _readable(self, data: bytes) -> None:
        self._frames = self._decoder.feed(data)
        self._hand_on()

    def _hand_on(self) -> None:
        left = FRAMES_PER_TURN
        try:
            for payload in self._frames:
                self._on_frame(plugin_pb2.PluginFrame.FromString(payload), len(payload))
                if self._reader.ended:
                    return
                left -= 1
                if not left:
                    self._reader.pause()
                    self._loop.call_soon(self._go_on)
                    return
        except FrameError as error:
            self._on_fault(Violation(error.fault.value), error.problem)
            return
        except DecodeError:
            self._on_fault(Violation.FRAME_MALFORMED, f"a frame is not a PluginFrame message; {_PRINTED}")
            return
        if not self._decoder.pending_bytes:
            self._stop_stall_timer()
        elif self._stall_timer is None:
            self._stall_timer = self._loop.call_later(self._stall_s, self._stalled)

    def _go_on(self) -> None:
        if not self._reader.ended:
            self._reader.resume()
            self._hand_on()

    def _stalled(self) -> None:
        self._stall_timer = None
        problem = f"a frame began and was not whole after {self._stall_s:g} s; {_PRINTED}"
        self._on_fault(Violation.FRAME_STALLED, problem)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _stdin_closed(self) -> None:
        self._on_fault(Violation.STDIN_CLOSED, "it closed its stdin")

    def _stdout_closed(self) -> None:
        self._stop_stall_timer()
        self._on_fault(Violation.STDOUT_CLOSED, "it closed its stdout")
