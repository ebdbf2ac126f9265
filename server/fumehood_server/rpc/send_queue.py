"""The send queue of a session: serialised answers in order, and how many of them go into one message."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from fumehood.v1 import tool_service_pb2 as pb

from fumehood_server.errors import RefusedError
from fumehood_server.rpc.unread import UnreadAnswers

MAX_QUEUED = 256
MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Answers that a slow reader may leave queued before its requests are no longer read. Calls under way come on top."""

MAX_QUEUED_UPDATES = 64
"""Updates that wait for a slow reader. More wait in their calls' `UpdateLog`s, which hold up the tools."""

MAX_COMBINED = 64
MAX_COMBINED_BYTES = 256 * 1024
"""What goes into one message: far below the 4 MiB that a gRPC client takes unless it is told otherwise."""


class SendQueue:
    """`SessionResponse`s on their way from the calls of a session to its one writer."""

    def __init__(self, unread: UnreadAnswers, caller: str) -> None:
        """Empty, and with each answer in a message of its own until `combine` is set.

        `unread` counts what waits and what is being written as the caller's.
        """
        self.combine = False
        self._unread = unread
        self._caller = caller
        self._writing_bytes = 0
        self._queue: deque[tuple[pb.SessionResponse, int, bool]] = deque()
        """Each with its size in bytes, and whether it is an update."""
        self._bytes = 0
        self._updates = 0
        self._room = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue)

    def put_answer(self, response: pb.SessionResponse) -> None:
        """Queue an answer, unless nobody will hear it any more.

        Raises:
            RefusedError: there is no room for it: the session must end.
        """
        self._put(response, is_update=False)

    def put_update(self, response: pb.SessionResponse) -> None:
        """Queue an update, or drop it where there is no room. Look at `takes_updates` before one is made."""
        with contextlib.suppress(RefusedError):
            self._put(response, is_update=True)

    def close(self) -> None:
        """Forget what waits, and take no more: the session is over. What it raised may hold this for long."""
        self._closed = True
        while self._queue:
            _, size = self._pop()
            self._unread.remove(self._caller, size)

    @property
    def takes_updates(self) -> bool:
        """Whether one more update may wait."""
        return self._updates < MAX_QUEUED_UPDATES

    def take_message(self) -> pb.SessionResponse:
        """Take the next message, and say `message_gone` once it is written. There must be an answer."""
        response, size = self._pop()
        if self.combine and self._fits(1, size):
            combined = [response]
            while self._fits(len(combined), size):
                further, further_size = self._pop()
                combined.append(further)
                size += further_size
            response = pb.SessionResponse(combined=pb.SessionResponses(responses=combined))
        self._writing_bytes = size
        self._room.set()
        return response

    def message_gone(self) -> None:
        """The message that was taken is written, or its stream is over."""
        if self._writing_bytes:
            self._unread.remove(self._caller, self._writing_bytes)
            self._writing_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether as many wait as a slow reader may leave."""
        return len(self._queue) > MAX_QUEUED or self._bytes > MAX_QUEUED_BYTES

    async def until_not_full(self) -> None:
        """Return once it is not full."""
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def _put(self, response: pb.SessionResponse, *, is_update: bool) -> None:
        if self._closed:
            return
        size = response.ByteSize()
        self._unread.add(self._caller, size)
        self._queue.append((response, size, is_update))
        self._bytes += size
        self._updates += is_update

    def _fits(self, count: int, size: int) -> bool:
        """Whether the next answer goes into a message that has this many, of so many bytes."""
        return bool(self._queue) and count < MAX_COMBINED and size + self._queue[0][1] <= MAX_COMBINED_BYTES

    def _pop(self) -> tuple[pb.SessionResponse, int]:
        response, size, is_update = self._queue.popleft()
        self._bytes -= size
        self._updates -= is_update
        return response, size
