"""Many calls over one stream, as a busy caller in Python would write it: what is ready goes into one message."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

import grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

Stream = grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]

MAX_COMBINED = 128
"""Requests in one message, by the protocol."""
MAX_COMBINED_BYTES = 1024 * 1024
"""Arguments in one message: half of what gRPC takes by default, since a larger message ends the session."""


class Session:
    """One `ToolService.Session`. `call` may be under way many times over."""

    def __init__(self, stream: Stream) -> None:
        """Take a stream that nobody has read from."""
        self._stream = stream
        self._waiting: dict[str, asyncio.Future[tool_pb2.ToolResult]] = {}
        self._ready: deque[pb.SessionRequest] = deque()
        self._count = 0
        self._writing = False
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start to read."""
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the stream."""
        if self._writer is not None:
            await self._writer
        await self._stream.done_writing()
        if self._reader is not None:
            await self._reader

    async def call(self, tool: str, arguments_json: str) -> tool_pb2.ToolResult:
        """Make a call and wait for its result."""
        self._count += 1
        call_id = f"c{self._count}"
        request = pb.SessionRequest(call=pb.CallToolRequest(tool=tool, arguments_json=arguments_json, call_id=call_id))
        alone = not self._waiting
        answer = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        self._ready.append(request)
        if not self._writing:
            self._writing = True
            if alone:
                await self._write_next()
            if self._ready:
                # In a turn of its own: whoever else got an answer in this one asks for more in it as well.
                self._writer = asyncio.create_task(self._write())
            else:
                self._writing = False
        result: tool_pb2.ToolResult = await answer
        return result

    async def _write(self) -> None:
        """Write until nothing is ready. gRPC takes one message at a time, and meanwhile others get ready."""
        while self._ready:
            await self._write_next()
        self._writing = False

    async def _write_next(self) -> None:
        message = self._ready.popleft()
        if self._ready:
            message = pb.SessionRequest(combined=pb.SessionRequests(requests=[message]))
            requests = message.combined.requests
            size = len(requests[0].call.arguments_json)
            while self._ready and len(requests) < MAX_COMBINED:
                size += len(self._ready[0].call.arguments_json)
                if size > MAX_COMBINED_BYTES:
                    break
                requests.append(self._ready.popleft())
        message.accepts_combined = True
        await self._stream.write(message)

    async def _read(self) -> None:
        async for message in self._stream:
            if message.HasField("combined"):
                for response in message.combined.responses:
                    self._answer(response)
            else:
                self._answer(message)

    def _answer(self, response: pb.SessionResponse) -> None:
        if response.HasField("finished"):
            self._waiting.pop(response.finished.call_id).set_result(response.finished)
        elif response.refused.kind == pb.SESSION_REQUEST_KIND_CALL:
            refusal = RuntimeError(response.refused.error.message)
            self._waiting.pop(response.refused.call_id).set_exception(refusal)
