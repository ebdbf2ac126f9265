"""One end of a pipe on the event loop: plain descriptors, no stream objects between a call and the kernel."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable

from fumehood_server.worker.company import LONGEST_WAIT_S, MOST_FRAMES
from fumehood_server.worker.nobody import nobody

READ_BYTES = 65_536
"""One read takes all that a pipe of Linux's default size holds."""

MAX_VECTORS = 64
"""Frames that go into one write. The kernel takes up to 1,024 (IOV_MAX); more than these fill a pipe anyway."""


class PipeReader:
    """Hands on what comes out of a pipe, one read in each turn of the loop, so that no pipe starves the others."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        """Begin to read `fd`, which must not block. It stays its owner's: `stop` does not close it."""
        self._loop = loop
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        self._watched = False
        self.ended = False
        """Whether no more will be handed on."""
        self.resume()

    def pause(self) -> None:
        """Read nothing until `resume`. The writer is held up once the pipe is full."""
        if self._watched:
            self._loop.remove_reader(self._fd)
            self._watched = False

    def resume(self) -> None:
        """Read on. Does nothing after the end."""
        if not self._watched and not self.ended:
            self._loop.add_reader(self._fd, self._readable)
            self._watched = True

    def stop(self) -> None:
        """Hand on nothing more, not even the end. Must come before `fd` is closed. Idempotent."""
        self.pause()
        self.ended = True
        self._on_data = self._on_end = nobody  # whom to tell most often holds this reader

    def look(self) -> bool:
        """Hand on what has come, without waiting for the loop to tell of it. False: there was nothing."""
        if not self._watched:
            return True
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            on_end = self._on_end
            self.stop()
            on_end()
        return True

    def _readable(self) -> None:
        self.look()


class PipeWriter:
    """Writes frames to a pipe, all of one turn of the loop at once. What the pipe does not take waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_broken: Callable[[], None]) -> None:
        """`fd` must not block and stays its owner's. `on_broken` is called once, when nobody reads any more."""
        self.on_together: Callable[[int], None] = nobody
        """Told of frames that have waited for each other in which turn the last one came. The first comes in turn 0."""
        self._loop = loop
        self._fd = fd
        self._on_broken = on_broken
        self._frames: deque[bytes | memoryview] = deque()
        self._scheduled = False
        self._turn = 0
        self._last_turn = 0
        """The one at whose end all that waits goes out."""
        self._joined_at = 0
        self._until = 0.0
        self._watched = False
        self._stopped = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.queued_bytes = 0
        """Bytes that were ever given to `send`."""
        self.written_bytes = 0
        """How many of them the pipe took."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the pipe."""
        return self.queued_bytes - self.written_bytes

    def send(self, frame: bytes, *, turns: int = 1) -> None:
        """Queue a frame. It goes out at the end of this turn of the loop, with the others of the turn.

        `turns` is how many turns it may wait at most; with 0 it goes at once unless others wait. The most impatient
        decides, and neither do `MOST_FRAMES` wait, nor what fills the pipe, nor anybody for `LONGEST_WAIT_S`.
        """
        if self._stopped:
            return
        self._frames.append(frame)
        self.queued_bytes += len(frame)
        if self._watched:
            return
        if self._scheduled:
            self._joined_at = self._turn
            self._last_turn = min(self._last_turn, self._turn + max(turns, 1))
        elif turns:
            self._scheduled = True
            self._turn = self._joined_at = 0
            self._last_turn = turns
            if turns > 1:
                self._until = time.monotonic() + LONGEST_WAIT_S
            self._loop.call_soon(self._end_turn)
        else:
            self._flush()

    async def drained(self, limit_bytes: int) -> None:
        """Wait until no more than this waits for the pipe, or nothing will be written any more.

        Nothing here bounds it: a reader may never read.
        """
        if self.unsent_bytes > limit_bytes and not self._stopped:
            waiting = self._loop.create_future()
            self._waiting.append((limit_bytes, waiting))
            await waiting

    def stop(self) -> None:
        """Write nothing more and forget what waits. Must come before `fd` is closed. Idempotent."""
        self._stopped = True
        self._last_turn = 0
        self._on_broken = self.on_together = nobody
        self._frames.clear()
        self._watch(wanted=False)
        self._wake()

    def _wake(self) -> None:
        """Let those go on who waited for this much, and forget those who gave up."""
        still = []
        for limit_bytes, waiting in self._waiting:
            if waiting.done():
                continue
            if self._stopped or self.unsent_bytes <= limit_bytes:
                waiting.set_result(None)
            else:
                still.append((limit_bytes, waiting))
        self._waiting = still

    def _end_turn(self) -> None:
        self._turn += 1
        if (
            self._turn < self._last_turn
            and len(self._frames) < MOST_FRAMES
            and self.unsent_bytes < READ_BYTES
            and time.monotonic() < self._until
        ):
            self._loop.call_soon(self._end_turn)
            return
        if self._last_turn > 1:
            self.on_together(self._joined_at)
        self._flush()

    def _flush(self) -> None:
        self._scheduled = False
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
            if self._waiting:
                self._wake()
            return
        except OSError:
            on_broken = self._on_broken
            self.stop()
            on_broken()
            return
        self._watch(wanted=False)
        if self._waiting:
            self._wake()

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self._watched:
            self._loop.add_writer(self._fd, self._flush)
        elif self._watched and not wanted:
            self._loop.remove_writer(self._fd)
        self._watched = wanted
