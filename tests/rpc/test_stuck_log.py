"""A reader of the sidecar's stderr that stops, as a stuck log collector does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, call, text_of
from tests.sidecar import running_sidecar

LONG = dict.fromkeys(("request_id", "session_id", "turn_id", "step_name", "caused_by"), "\x7f" * 256)
"""A call's context whose line in the log has 8 KB: six characters for each of these."""
CALLS = 1_000
"""Their lines are some 8 MB. Of those a pipe takes 64 KiB, and 4 MiB wait (`MAX_WAITING_BYTES`)."""
AT_ONCE = 50
FIELDS = {"event", "level", "timestamp", "lines"}


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


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end. Nobody reads as long as the test doesn't."""
    readable, writable = os.pipe()
    yield readable, writable
    os.close(readable)
    os.close(writable)


async def lines_of(readable: int) -> AsyncIterator[dict[str, Any]]:
    """The log's lines as they come."""
    reader = asyncio.StreamReader()
    with os.fdopen(os.dup(readable), "rb") as file:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        try:
            while line := await reader.readline():
                yield json.loads(line)
        finally:
            transport.close()


async def test_lines_lost_while_nobody_reads_are_counted_in_a_line_once_somebody_does(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    with running_sidecar(stderr=writable) as sidecar:
        async with sidecar.channel() as channel, asyncio.timeout(BOUND_S):
            tools = ToolServiceStub(channel)
            for _ in range(CALLS // AT_ONCE):
                await asyncio.gather(*(tools.CallTool(call("nothing", context=LONG)) for _ in range(AT_ONCE)))
            kept = 0
            told = list[dict[str, Any]]()
            lines = lines_of(readable)
            # The writer may make room while calls still come, and lines be dropped a second time.
            while kept + sum(each["lines"] for each in told) < CALLS:
                line = await anext(lines)
                kept += line.get("tool") == "nothing"
                told += [line] if line["event"] == "log_lines_dropped" else []
            assert told
            assert all((each["level"], set(each)) == ("warning", FIELDS) for each in told)
            assert kept > CALLS // 3
            await tools.CallTool(call("afterwards"))
            while (await anext(lines)).get("tool") != "afterwards":
                pass
            await lines.aclose()
