"""Many calls over one stream, as a caller in Python would write it."""

from __future__ import annotations

import asyncio
from typing import Self

import grpc
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

Stream = grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]


class Session:
    """One `ToolService.Session`. `call` may be under way many times over."""

    def __init__(self, stream: Stream) -> None:
        """Take a stream that nobody has read from."""
        self._stream = stream
        self._waiting: dict[str, asyncio.Future[tool_pb2.ToolResult]] = {}
        self._write = asyncio.Lock()  # gRPC takes one message at a time
        self._count = 0
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start to read."""
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the stream."""
        await self._stream.done_writing()
        if self._reader is not None:
            await self._reader

    async def call(self, tool: str, arguments_json: str) -> tool_pb2.ToolResult:
        """Make a call and wait for its result."""
        self._count += 1
        call_id = f"c{self._count}"
        request = pb.SessionRequest(call=pb.CallToolRequest(tool=tool, arguments_json=arguments_json, call_id=call_id))
        answer = self._waiting[call_id] = asyncio.get_running_loop().create_future()
        async with self._write:
            await self._stream.write(request)
        result: tool_pb2.ToolResult = await answer
        return result

    async def _read(self) -> None:
        async for message in self._stream:
            if message.HasField("finished"):
                self._waiting.pop(message.finished.call_id).set_result(message.finished)
            elif message.HasField("refused"):
                refusal = RuntimeError(message.refused.error.message)
                self._waiting.pop(message.refused.call_id).set_exception(refusal)
