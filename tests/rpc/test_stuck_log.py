"""A reader of the sidecar's stderr that stops, as a stuck log collector does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, call, text_of
from tests.sidecar import running_sidecar


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The writing end of a pipe that nobody reads and that holds no byte more."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    try:
        while True:
            os.write(writable, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writable, True)
    yield writable
    os.close(readable)
    os.close(writable)


async def test_calls_and_the_drain_go_on_while_nobody_reads_the_log(plugin_folder: Path, full_pipe: int) -> None:
    with running_sidecar([plugin_folder], stderr=full_pipe) as sidecar:
        async with sidecar.channel() as channel, asyncio.timeout(BOUND_S):
            tools = ToolServiceStub(channel)
            for number in range(50):
                text = str(number)
                assert text_of((await tools.CallTool(call("echo", {"text": text}))).result) == text
                assert (await tools.CallTool(call("fail"))).result.is_error
        sidecar.signal(signal.SIGTERM)
        assert await asyncio.to_thread(sidecar.wait) == 0
