"""Many calls over one `Session`, from any number of tasks: copy it into a service that makes many quick calls.

What becomes ready while gRPC writes a message travels in the next one, combined, and so do the answers. The rules of a
session are in docs/protocol.md, 2.2.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from types import TracebackType
from typing import Self

import grpc
from fumehood.v1 import error_pb2, tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

Stream = grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]

MAX_COMBINED = 128
"""Requests in one message, by the protocol."""
MAX_COMBINED_BYTES = 1024 * 1024
"""Of requests in one message: gRPC ends a session over one of more than 2 MiB, unless the sidecar takes more."""


class RefusedError(Exception):
    """Nothing ran. Switch on `code`; try again where it is `retryable`."""

    def __init__(self, error: error_pb2.SystemError) -> None:
        super().__init__(error.message)
        self.code = error.code
        self.retryable = error.retryable


class SessionEndedError(Exception):
    """The session ended before the call's answer came. What became of the call is unknown."""


class Session:
    """An async context manager. Leaving it waits for the calls under way.

        async with Session(stub.Session()) as session:
            result = await session.call("roll_dice", '{"count": 2, "sides": 6}')

    A session has no deadline of its own, since that would end all its calls: set each call's `timeout_s`.
    """

    def __init__(self, stream: Stream) -> None:
        """Take a stream that nobody has read from."""
        self._stream = stream
        self._waiting: dict[str, asyncio.Future[tool_pb2.ToolResult]] = {}
        self._ready: deque[pb.SessionRequest] = deque()
        # Of all that are under way in the sidecar, whosever they are, no two may have the same.
        self._ids = map(f"{secrets.token_hex(8)}-{{}}".format, itertools.count(1))
        self._wake: asyncio.Future[None] | None = None
        self._over = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def __aenter__(self) -> Self:
        """Start to read and to write."""
        self._tasks = (asyncio.create_task(self._read()), asyncio.create_task(self._write()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Half-close the stream once all is written, and read to its end. After an exception: end it at once."""
        if kind is not None:
            self._stream.cancel()
        self._over = True
        self._wake_writer()
        await asyncio.wait(self._tasks)

    async def call(
        self, tool: str, arguments_json: str, *, timeout_s: float | None = None, call_id: str = ""
    ) -> tool_pb2.ToolResult:
        """Make a call and wait for its result, which may be an error of the tool's. Cancelling this cancels the call.

        With a `call_id` of yours it can be made again, also over another session: the tool runs once.

        Raises:
            RefusedError: nothing ran.
            SessionEndedError: the session is over.
        """
        if self._over:
            raise SessionEndedError("the session is over")
        call_id = call_id or next(self._ids)
        request = pb.SessionRequest(call=pb.CallToolRequest(tool=tool, arguments_json=arguments_json, call_id=call_id))
        if timeout_s is not None:
            request.call.timeout.FromNanoseconds(round(timeout_s * 1e9))
        answer = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        self._put(request)
        try:
            result: tool_pb2.ToolResult = await answer
        except asyncio.CancelledError:
            if self._waiting.pop(call_id, None) is not None:
                self._put(pb.SessionRequest(cancel=pb.CancelCallRequest(call_id=call_id)))
            raise
        return result

    def _put(self, request: pb.SessionRequest) -> None:
        self._ready.append(request)
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _write(self) -> None:
        # A task of its own: gRPC takes one message at a time, and ends the stream if a task is cancelled that writes.
        loop = asyncio.get_running_loop()
        try:
            while True:
                while self._ready:
                    await self._stream.write(self._next_message())
                if self._over:
                    await self._stream.done_writing()
                    return
                self._wake = loop.create_future()
                await self._wake
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            return  # the stream is over, and `_read` hears why

    def _next_message(self) -> pb.SessionRequest:
        message = self._ready.popleft()
        if self._ready:
            message = pb.SessionRequest(combined=pb.SessionRequests(requests=[message]))
            requests = message.combined.requests
            size = requests[0].ByteSize()
            while self._ready and len(requests) < MAX_COMBINED:
                size += self._ready[0].ByteSize()
                if size > MAX_COMBINED_BYTES:
                    break
                requests.append(self._ready.popleft())
        message.accepts_combined = True
        return message

    async def _read(self) -> None:
        why = "its answers are over"
        try:
            async for message in self._stream:
                if message.HasField("combined"):
                    for response in message.combined.responses:
                        self._hear(response)
                else:
                    self._hear(message)
        except grpc.aio.AioRpcError as error:
            why = f"{error.code().name}: {error.details()}"
        finally:
            self._end(why)

    def _hear(self, response: pb.SessionResponse) -> None:
        # A refused cancellation, or one of a whole message, is nobody's.
        if response.HasField("finished"):
            answer = self._whose(response.finished.call_id)
            if answer is not None:
                answer.set_result(response.finished)
        elif response.refused.kind == pb.SESSION_REQUEST_KIND_CALL:
            answer = self._whose(response.refused.call_id)
            if answer is not None:
                answer.set_exception(RefusedError(response.refused.error))

    def _whose(self, call_id: str) -> asyncio.Future[tool_pb2.ToolResult] | None:
        """Who waits for it. None: the caller was cancelled, maybe just now and without a turn of the loop since."""
        answer = self._waiting.pop(call_id, None)
        return None if answer is None or answer.done() else answer

    def _end(self, why: str) -> None:
        """Who waits gets no answer any more."""
        self._over = True
        self._wake_writer()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(SessionEndedError(f"the session ended: {why}"))
        self._waiting.clear()
