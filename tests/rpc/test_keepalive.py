"""A client that vanishes without a word: its network goes silent, and nobody closes its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, call, logged, text_of
from tests.sidecar import running_sidecar


class Wire:
    """TCP to a sidecar. Once it is `cut`, both sides are still connected and acknowledged, and nothing passes."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.cut = False

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, far_writer]
        async with asyncio.TaskGroup() as both:
            both.create_task(self._carry(reader, far_writer))
            both.create_task(self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.cut:
                writer.write(data)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def wired(target: str) -> AsyncIterator[tuple[Wire, ToolServiceStub]]:
    wire = Wire(target)
    server = await asyncio.start_server(wire.accepted, "127.0.0.1", 0)
    own = [("grpc.use_local_subchannel_pool", 1)]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", options=own) as channel:
            yield wire, ToolServiceStub(channel)
    finally:
        server.close()
        await wire.close()


@pytest.mark.parametrize("method", ["unary", "stream", "session"])
async def test_the_calls_of_a_client_that_vanished_are_cancelled(plugin_folder: Path, method: str) -> None:
    server = 'listen = ["unix:s", "127.0.0.1:0"]\nkeepalive_s = 2'  # twice that is less than the control waits
    with running_sidecar([plugin_folder], server=server) as sidecar:
        target = sidecar.targets[1]
        async with sidecar.channel() as channel, wired(target) as (wire, vanishing), wired(target) as (_, silent):
            # The control says as little, and answers when it is asked.
            staying = asyncio.ensure_future(silent.CallTool(call("wait", {"seconds": 5}), timeout=BOUND_S))
            begun = await _begun(vanishing, method)
            wire.cut = True
            # A minute and more without the sidecar's own bound on the answer.
            await logged(sidecar, ToolServiceStub(channel), "vanished", "CANCELLED_SIGNAL")
            begun.cancel()
            assert text_of((await staying).result) == "waited"


async def _begun(tools: ToolServiceStub, method: str) -> grpc.aio.Call:
    """A call that has reached its tool."""
    asked = call("wait", {"seconds": 60}, call_id="vanished")
    if method == "session":
        session = tools.Session()
        await session.write(pb.SessionRequest(call=asked, updates=True))
        assert (await session.read()).update.message == "begun"
        return session
    if method == "stream":
        stream = tools.StreamTool(pb.StreamToolRequest(call=asked))
        while not (await stream.read()).HasField("update"):
            pass
        return stream
    unary = tools.CallTool(asked)
    await tools.CallTool(call("echo", {"text": "after it"}), timeout=BOUND_S)
    return unary
