"""Stdin and stdout as the SDK's pair of streams: lines of JSON, by readiness of the descriptors and without threads.

The SDK's own reads on a thread, which can't be cancelled and holds up the process's end while stdin is open, and reads
on whether its client takes the answers or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import select
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from fumehood_server.mcp.message_lines import (
    END_BYTES,
    MalformedMessageError,
    read_message,
    refuse_overlong,
    write_message,
)
from fumehood_server.telemetry import get_logger

MAX_LINE_BYTES = 8 * 1024 * 1024
"""Of one message: above twice what a call's arguments may be set to. One that is longer is refused."""

MAX_WAITING = 64
"""Messages that wait for the client to read them. Above, nothing is read from it: what it sends stays in its pipe."""

MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Likewise, of all of them."""

FLUSH_TIMEOUT_S = 5.0
"""Once the client has closed its end: for the answers that are left to come, and then for it to read the rest."""

_READ_BYTES = 64 * 1024

_LISTEN = "subscriptions/listen"
"""The request that is answered when its client has had enough, if ever."""

Received = SessionMessage | Exception


@contextlib.asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[MemoryObjectReceiveStream[Received], Outgoing]]:
    """What the client sends, and what it is sent, within the block.

    The first ends when the client reads no more, or closes its other end: once what it has asked is answered, or
    FLUSH_TIMEOUT_S later.
    """
    incoming, received = anyio.create_memory_object_stream[Received](0)
    handed, lines = anyio.create_memory_object_stream[bytes](0)
    outgoing = Outgoing(handed)
    with _standard_streams() as (stdin, stdout):
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_read_messages(stdin, incoming, outgoing))
            writing = tasks.create_task(_write_lines(stdout, lines, reading))
            yield received, outgoing
            reading.cancel()
            await asyncio.wait({writing}, timeout=FLUSH_TIMEOUT_S)
            writing.cancel()


class Outgoing:
    """The SDK's stream of messages to write, with a bound from which nothing more is to be read, and what is asked."""

    __slots__ = ("_answered", "_lines", "_room", "_unanswered", "_waiting", "_waiting_bytes")

    def __init__(self, lines: MemoryObjectSendStream[bytes]) -> None:
        """`lines` leads to whoever writes them."""
        self._lines = lines
        self._waiting = self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._unanswered: set[RequestId] = set()
        self._answered = asyncio.Event()
        self._answered.set()

    def expect(self, received: SessionMessage) -> None:
        """Count what the client sends, before it is handed on: a request is to be answered, unless it is cancelled."""
        message = received.message
        if isinstance(message, JSONRPCRequest) and message.method != _LISTEN:
            self._unanswered.add(message.id)
            self._answered.clear()
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))

    async def answered(self) -> None:
        """Wait until every request is answered."""
        await self._answered.wait()

    async def send(self, item: SessionMessage, /) -> None:
        """Have it written: returns when those before it are. Cancelling this leaves it out whole."""
        line = write_message(item.message)
        self._count(1, len(line))
        try:
            await self._lines.send(line)
        finally:
            self._count(-1, -len(line))
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._settle(item.message.id)

    async def room(self) -> None:
        """Wait until less waits to be written than the bound."""
        await self._room.wait()

    async def aclose(self) -> None:
        """Nothing more is to be written."""
        await self._lines.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _settle(self, request_id: object) -> None:
        if isinstance(request_id, int | str):
            self._unanswered.discard(request_id)
        if not self._unanswered:
            self._answered.set()

    def _count(self, messages: int, size_bytes: int) -> None:
        self._waiting += messages
        self._waiting_bytes += size_bytes
        if self._waiting < MAX_WAITING and self._waiting_bytes < MAX_WAITING_BYTES:
            self._room.set()
        else:
            self._room.clear()


async def _read_messages(stdin: int, incoming: MemoryObjectSendStream[Received], outgoing: Outgoing) -> None:
    async with incoming:
        async for line, is_whole in _read_lines(stdin):
            await outgoing.room()
            try:
                await _hand_on(line, incoming, outgoing, is_whole=is_whole)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server has ended
                return
        with contextlib.suppress(TimeoutError):  # the server's end of `incoming` ends what it has begun
            await asyncio.wait_for(outgoing.answered(), FLUSH_TIMEOUT_S)


async def _hand_on(
    line: bytes, incoming: MemoryObjectSendStream[Received], outgoing: Outgoing, *, is_whole: bool
) -> None:
    """Hand on the line's message. What is none is answered here: the SDK would tell nobody but its log."""
    try:
        if not is_whole:
            raise refuse_overlong(line, MAX_LINE_BYTES)
        if not line.strip():
            return
        message = read_message(line)
    except MalformedMessageError as error:
        if error.answer is not None:
            await outgoing.send(error.answer)
        else:
            get_logger().warning("mcp_message_not_understood", problem=str(error))
        return
    outgoing.expect(message)
    await incoming.send(message)


async def _read_lines(stdin: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Each line until the end, and whether it is whole. Of one longer than the bound, END_BYTES are left at each end.

    A chunk is far shorter than the bound: what is held is little above it.
    """
    held, is_whole = bytearray(), True
    while chunk := await _read(stdin):
        for index, piece in enumerate(chunk.split(b"\n")):
            if index:
                yield bytes(held), is_whole
                held, is_whole = bytearray(), True
            held += piece
            if not is_whole or len(held) > MAX_LINE_BYTES:
                is_whole = False
                del held[END_BYTES:-END_BYTES]
    if held:
        yield bytes(held), is_whole


async def _read(stdin: int) -> bytes:
    """What is there, as soon as something is. Empty: the client has closed its end, or its terminal is gone."""
    while True:
        await _ready(stdin, writing=False)
        try:
            return os.read(stdin, _READ_BYTES)
        except BlockingIOError:  # somebody has made it non-blocking, and somebody else has read what was there
            continue
        except OSError as error:
            if error.errno in {errno.ECONNRESET, errno.EIO}:
                return b""
            raise


async def _write_lines(stdout: int, lines: MemoryObjectReceiveStream[bytes], reading: asyncio.Task[None]) -> None:
    """Write each line, whole. A client that reads no more has gone away: then nothing more is read from it."""
    async with lines:
        try:
            async for line in lines:
                await _write(stdout, memoryview(line))
        except (BrokenPipeError, ConnectionResetError):
            reading.cancel()
            async for _ in lines:
                pass


async def _write(stdout: int, left: memoryview) -> None:
    while left:
        await _ready(stdout, writing=True)
        with contextlib.suppress(BlockingIOError):
            # A pipe that is ready has room for so much at least (pipe(7)): the write doesn't block.
            left = left[os.write(stdout, left[: select.PIPE_BUF]) :]


async def _ready(descriptor: int, *, writing: bool) -> None:
    """Wait until it can be read from or written to. It stays as it is: O_NONBLOCK is the parent's or terminal's too."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    watch, leave = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    try:
        watch(descriptor, _resolve, ready)
    except PermissionError:  # a file or /dev/null, which epoll doesn't take (epoll_ctl(2)): they are always ready
        await asyncio.sleep(0)
        return
    try:
        await ready
    finally:
        leave(descriptor)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@contextlib.contextmanager
def _standard_streams() -> Iterator[tuple[int, int]]:
    """Stdin and stdout under other numbers: what other code reads or prints meanwhile is nothing of the client's."""
    with contextlib.ExitStack() as stack:
        kept = []
        for number, other in ((0, os.open(os.devnull, os.O_RDONLY)), (1, _stderr())):
            stack.callback(os.close, other)
            kept.append(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3))
            stack.callback(os.close, kept[-1])
            os.dup2(other, number)
            stack.callback(os.dup2, kept[-1], number)
        stdin, stdout = kept
        yield stdin, stdout


def _stderr() -> int:
    try:
        return os.dup(2)
    except OSError:  # closed
        return os.open(os.devnull, os.O_WRONLY)


__all__ = ["FLUSH_TIMEOUT_S", "MAX_LINE_BYTES", "MAX_WAITING", "MAX_WAITING_BYTES", "Outgoing", "stdio_streams"]
