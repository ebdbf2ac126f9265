"""Lists every tool in one page. `python -m bench.clients.list_tools ADDRESS COUNT`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from bench.harness.agent import serve
from bench.harness.load import Echo

_PAGE_SIZE = 1000


@asynccontextmanager
async def connect(address: str, count: int) -> AsyncIterator[Echo]:
    """Open a channel. Each call of what it yields lists all tools and counts them."""
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub = tool_grpc.ToolServiceStub(channel)
        request = pb.ListToolsRequest(page_size=_PAGE_SIZE)

        async def list_all() -> None:
            answer = await stub.ListTools(request)
            if len(answer.tools) != count:
                raise RuntimeError(f"{len(answer.tools)} tools are listed, not {count}")

        yield list_all


if __name__ == "__main__":
    asyncio.run(
        serve(
            lambda: connect(sys.argv[1], int(sys.argv[2])),
            lambda: connect(sys.argv[1], int(sys.argv[2])),
        )
    )
