"""Loads the bare grpc.aio echo. `python -m bench.clients.grpc_echo ADDRESS FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from google.protobuf.wrappers_pb2 import StringValue

from bench.harness.agent import serve
from bench.harness.load import Echo
from bench.harness.processes import python, running
from bench.payload import TEXT
from bench.peers.grpc_server import METHOD


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[Echo]:
    """Open a channel; it waits for a server that is about to come."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 20)]) as channel:
        method = channel.unary_unary(
            METHOD, request_serializer=StringValue.SerializeToString, response_deserializer=StringValue.FromString
        )
        request = StringValue(value=TEXT)

        async def echo() -> None:
            answer: StringValue = await method(request, wait_for_ready=True)
            if answer.value != TEXT:
                raise RuntimeError("not an echo")

        yield echo


@asynccontextmanager
async def start(folder: str) -> AsyncIterator[Echo]:
    """Start a server and connect to it."""
    address = f"unix:{folder}/start.sock"
    async with running(python("bench.peers.grpc_server", address)), connect(address) as echo:
        yield echo


if __name__ == "__main__":
    asyncio.run(serve(lambda: connect(sys.argv[1]), lambda: start(sys.argv[2])))
