"""Loads the sidecar's echo tool. `python -m bench.clients.fumehood unary|session ADDRESS FOLDER`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import grpc
import orjson
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from bench.harness.agent import serve
from bench.harness.load import Echo
from bench.harness.sidecar import QUICK_RECONNECT, address, echo_config, sidecar
from bench.payload import TEXT
from examples.clients.python.session import Session

ARGUMENTS = orjson.dumps({"text": TEXT}).decode()

Connect = Callable[[str], AbstractAsyncContextManager[Echo]]


def check(result: tool_pb2.ToolResult) -> None:
    """Raise RuntimeError unless the result is the echo."""
    if result.is_error or result.content[0].text != TEXT:
        raise RuntimeError(f"not an echo: {result}")


@asynccontextmanager
async def unary(where: str) -> AsyncIterator[Echo]:
    """One CallTool a call."""
    async with grpc.aio.insecure_channel(where, options=QUICK_RECONNECT) as channel:
        stub = tool_grpc.ToolServiceStub(channel)
        request = pb.CallToolRequest(tool="echo", arguments_json=ARGUMENTS)

        async def echo() -> None:
            check((await stub.CallTool(request, wait_for_ready=True)).result)

        yield echo


@asynccontextmanager
async def session(where: str) -> AsyncIterator[Echo]:
    """All calls over one Session."""
    async with contextlib.AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(where, options=QUICK_RECONNECT))
        stream = tool_grpc.ToolServiceStub(channel).Session(wait_for_ready=True)  # type: ignore[call-arg] # written to
        calls = await stack.enter_async_context(Session(stream))

        async def echo() -> None:
            check(await calls.call("echo", ARGUMENTS))

        yield echo


@asynccontextmanager
async def start(folder: Path, connect: Connect) -> AsyncIterator[Echo]:
    """Start a sidecar, which pinned its plugin earlier, and connect to it."""
    async with sidecar(echo_config(folder)), connect(address(folder)) as echo:
        yield echo


if __name__ == "__main__":
    _CONNECT: Connect = {"unary": unary, "session": session}[sys.argv[1]]
    asyncio.run(serve(lambda: _CONNECT(sys.argv[2]), lambda: start(Path(sys.argv[3]) / sys.argv[1], _CONNECT)))
