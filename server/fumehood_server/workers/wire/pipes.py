"""Non-blocking pipes on the event loop: plain descriptors, no stream objects between a call and the kernel."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

READ_BYTES = 65_536
"""One read takes all that a pipe of Linux's default size holds."""

MAX_VECTORS = 64
"""Frames that go into one write. The kernel takes up to 1,024 (IOV_MAX); more than these fill a pipe anyway."""


class PipeReader(ABC):
    """Reads a pipe, once in each iteration of the loop, so that no pipe starves the others.

    The loop alone holds it, by its callback, until `stop`.
    """

    def __init__(self, fd: int) -> None:
        """`fd` must not block. It stays its owner's: `stop` does not close it."""
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._watched = False
        self.ended = False
        """Whether no more will be handed on."""

    @abstractmethod
    def take_data(self, data: bytes) -> None:
        """What was read."""

    @abstractmethod
    def take_end(self) -> None:
        """The writer has closed the pipe; `ended` is true already."""

    def resume(self) -> None:
        """Begin to read, or read on. Does nothing after the end."""
        if not self._watched and not self.ended:
            self._loop.add_reader(self._fd, self._readable)
            self._watched = True

    def pause(self) -> None:
        """Read nothing until `resume`. The writer is held up once the pipe is full."""
        if self._watched:
            self._loop.remove_reader(self._fd)
            self._watched = False

    def stop(self) -> None:
        """Hand on nothing more, not even the end. Must come before `fd` is closed. Idempotent."""
        self.pause()
        self.ended = True

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.take_data(data)
        else:
            self.stop()
            self.take_end()


class PipeWriter:
    """Writes frames to a pipe, each at once. What the pipe does not take waits, in order."""

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        """`fd` must not block and stays its owner's. `on_broken` is called once, when nobody reads any more."""
        self._fd = fd
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._frames: deque[bytes | memoryview] = deque()
        self._watched = False
        self._stopped = False
        self._drained = asyncio.Event()
        self.queued_bytes = 0
        """Bytes that were ever given to `send`."""
        self.written_bytes = 0
        """How many of them the pipe took."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the pipe."""
        return self.queued_bytes - self.written_bytes

    def send(self, frame: bytes) -> None:
        """Write a frame, or queue what the pipe does not take of it. Nothing happens after `stop`."""
        if self._stopped:
            return
        self.queued_bytes += len(frame)
        self._frames.append(frame)
        if not self._watched:
            self._flush()

    async def drained(self, limit_bytes: int) -> None:
        """Wait until no more than this waits for the pipe, or nothing will be written any more.

        Nothing here bounds it: a reader may never read.
        """
        while self.unsent_bytes > limit_bytes and not self._stopped:
            self._drained.clear()
            await self._drained.wait()

    def stop(self) -> None:
        """Write nothing more and forget what waits. Must come before `fd` is closed. Idempotent."""
        self._stopped = True
        self._frames.clear()
        self._watch(wanted=False)
        self._drained.set()

    def _flush(self) -> None:
        frames = self._frames
        try:
            while frames:
                if len(frames) == 1:
                    taken = os.write(self._fd, frames[0])
                else:
                    taken = os.writev(self._fd, [frames[i] for i in range(min(len(frames), MAX_VECTORS))])
                self.written_bytes += taken
                while frames and taken >= len(frames[0]):
                    taken -= len(frames.popleft())
                if taken:
                    frames[0] = memoryview(frames[0])[taken:]
        except BlockingIOError:
            self._watch(wanted=True)
        except OSError:
            self.stop()
            self._on_broken()
        else:
            self._watch(wanted=False)
        self._drained.set()

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self._watched:
            self._loop.add_writer(self._fd, self._flush)
        elif self._watched and not wanted:
            self._loop.remove_writer(self._fd)
        self._watched = wanted
