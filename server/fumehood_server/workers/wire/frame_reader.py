"""Reads the frames of one process: what was read is cut, parsed and handed on, many frames by round-robin."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from typing import Protocol

from fumehood.v1 import plugin_pb2
from google.protobuf.message import DecodeError

from fumehood_server.field_count import FieldCounter, MalformedMessageError, nested_tags
from fumehood_server.workers.faults import PRINTED, Violation
from fumehood_server.workers.wire.decoder import FrameDecoder, FrameError
from fumehood_server.workers.wire.pipes import READ_BYTES, PipeReader
from fumehood_server.workers.wire.portions import portions

FRAMES_AT_ONCE = 4
"""Frames of one read that are handed on at once. A full pipe can hold thousands: the rest waits for its turns.

More than one, so that a result waits for no iteration of the loop behind the few logs or updates that it was read with.
"""

UNCOUNTED_BYTES = READ_BYTES
"""A frame of up to so many bytes is parsed without counting what it holds: with 32,768 empty fields, in 1.5 ms."""

_TAKEN = object()
_NESTED_TAGS = nested_tags(plugin_pb2.PluginFrame.DESCRIPTOR)


def has_more_fields(frame: bytes, limit: int) -> bool:
    """Whether a `PluginFrame` holds more than `limit` fields; see `FieldCounter`.

    Raises:
        MalformedMessageError: it is no message.
    """
    return FieldCounter(frame, _NESTED_TAGS).has_more(limit)


class FrameHandler(Protocol):
    """Who takes the frames of one process."""

    @property
    def closed(self) -> bool:
        """Whether nothing that the process says counts any more."""

    @property
    def max_fields(self) -> int:
        """Most fields of the next frame, on all its levels together."""

    def take_frame(self, frame: plugin_pb2.PluginFrame, size: int) -> Generator[None, None, None] | None:
        """One frame, of `size` bytes. What is returned are steps in which it is taken, before the next frame is."""

    def take_violation(self, violation: Violation, problem: str) -> None:
        """The stream is not one of frames: nothing more can be read."""

    def take_fault(self, error: Exception) -> None:
        """A frame could not be taken, by a fault of the sidecar's: nothing more is read, since a part may be lost."""

    def take_end(self) -> None:
        """The process closed its stdout. Whether that is a fault or just its exit is yet to be seen."""


class FrameReader(PipeReader):
    """Reads the stdout of one process, whatever it writes there."""

    def __init__(self, fd: int, handler: FrameHandler, *, max_frame_bytes: int, stall_s: float) -> None:
        """A frame that has begun must be whole within `stall_s`. Call `resume` to begin."""
        super().__init__(fd)
        self._handler = handler
        self._stall_s = stall_s
        self._decoder = FrameDecoder(max_frame_bytes)
        self._frames: Iterator[bytes] = iter(())
        self._steps: Generator[None, None, None] | None = None
        """Those of a frame that is not taken yet."""
        self._stall_timer: asyncio.TimerHandle | None = None
        self._turns = portions()
        self._held = False
        self._has_turn = False

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return self._decoder.pending_bytes > 0

    def take_data(self, data: bytes) -> None:
        """Cut it into frames, and hand them on."""
        self._frames = self._decoder.decode_frames(data)
        for _ in range(FRAMES_AT_ONCE):
            if not self._hand_on() or self._held:
                return
        self.pause()
        self._add_turn()

    def hold(self, *, held: bool) -> None:
        """Hand on nothing until it is let go, so that the process waits once the pipe is full."""
        if held is self._held or self.ended:
            return
        self._held = held
        if held:
            self.pause()
            self._stop_stall_timer()
        else:
            self._add_turn()  # for what was read already

    def take_end(self) -> None:
        """Tell that nothing more comes."""
        self._stop_stall_timer()
        self._handler.take_end()

    def stop(self) -> None:
        """Hand on nothing more; see `PipeReader.stop`."""
        super().stop()
        self._frames, self._steps = iter(()), None
        self._stop_stall_timer()

    def _hand_on(self) -> bool:
        """Hand on one frame, or one step of it. False: there is no other one until more is read."""
        try:
            if self._steps is None or self._handler.closed:
                return self._hand_on_frame()
            if next(self._steps, _TAKEN) is _TAKEN:
                self._steps = None
        except Exception as error:  # noqa: BLE001 - raised into the loop, it would leave calls without an end
            self.stop()
            self._handler.take_fault(error)
        return not self.ended

    def _hand_on_frame(self) -> bool:
        handler = self._handler
        try:
            payload = next(self._frames, None)
            if payload is None:
                self._look_for_half_a_frame()
                return False
            self._stop_stall_timer()  # it was for this one, and the next has its own time
            if handler.closed:
                self.stop()
                return False
            if len(payload) > UNCOUNTED_BYTES and has_more_fields(payload, handler.max_fields):
                problem = f"a frame of {len(payload)} bytes has more than {handler.max_fields} fields"
                self._refuse(Violation.TOO_MANY_ELEMENTS, problem)
                return False
            self._steps = handler.take_frame(plugin_pb2.PluginFrame.FromString(payload), len(payload))
        except FrameError as error:
            self._refuse(Violation(error.fault.value), error.problem)
            return False
        except (DecodeError, MalformedMessageError):
            self._refuse(Violation.FRAME_MALFORMED, f"a frame is not a PluginFrame message; {PRINTED}")
            return False
        return not self.ended

    def _add_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._turns.add(self._take_turn)

    def _take_turn(self) -> bool:
        if not self.ended and not self._held and self._hand_on() and not self._held:
            return True
        self._has_turn = False
        if not self._held:
            self.resume()
        return False

    def _look_for_half_a_frame(self) -> None:
        if not self._decoder.pending_bytes:
            self._stop_stall_timer()
        elif self._stall_timer is None:
            self._stall_timer = self._loop.call_later(self._stall_s, self._stalled)

    def _stalled(self) -> None:
        self._refuse(Violation.FRAME_STALLED, f"a frame began and was not whole after {self._stall_s:g} s; {PRINTED}")

    def _refuse(self, violation: Violation, problem: str) -> None:
        self.stop()
        self._handler.take_violation(violation, problem)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
