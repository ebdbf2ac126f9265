"""One end of a pipe on the event loop: plain descriptors, no stream objects between a call and the kernel."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from fumehood_server.workers.process.nobody import nobody

READ_BYTES = 65_536
"""One read takes all that a pipe of Linux's default size holds."""


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

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            on_end = self._on_end
            self.stop()
            on_end()


class PipeWriter:
    """Writes frames to a pipe at once. What the pipe does not take waits, in order, until it can be written."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_broken: Callable[[], None]) -> None:
        """`fd` must not block and stays its owner's.

        `on_broken` is called once, when nobody reads any more, and never from within `send`.
        """
        self._loop = loop
        self._fd = fd
        self._on_broken = on_broken
        self._unsent: deque[bytes | memoryview] = deque()
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

    def send(self, frame: bytes) -> None:
        """Write a frame, or keep what the pipe does not take. Does nothing once nobody reads any more."""
        if self._stopped:
            return
        self._unsent.append(frame)
        self.queued_bytes += len(frame)
        if not self._watched:
            self._write_unsent()

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
        self._on_broken = nobody
        self._end()

    def _end(self) -> None:
        self._stopped = True
        self._unsent.clear()
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

    def _write_unsent(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                taken = os.write(self._fd, unsent[0])
                self.written_bytes += taken
                if taken == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = memoryview(unsent[0])[taken:]
        except BlockingIOError:
            pass
        except OSError:
            self._end()
            self._loop.call_soon(self._tell_broken)
            return
        self._watch(wanted=bool(unsent))
        if self._waiting:
            self._wake()

    def _tell_broken(self) -> None:
        on_broken, self._on_broken = self._on_broken, nobody
        on_broken()

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self._watched:
            self._loop.add_writer(self._fd, self._write_unsent)
        elif self._watched and not wanted:
            self._loop.remove_writer(self._fd)
        self._watched = wanted
