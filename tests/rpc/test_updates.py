"""Updates of calls: a caller that stops reading has the tool wait, and one that comes back goes on where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import reason_of
from tests.sidecar import Sidecar, running_sidecar, write_plugin

CODE = """
import os
from pathlib import Path
from fumehood_sdk import Context, Plugin

plugin = Plugin("talker", version="1.0.0")


def _say(path: str, count: int, size: int, ctx: Context) -> int:
    for number in range(1, count + 1):
        ctx.update("x" * size, progress=number, total=count, unit="lines")
        Path(path).write_text(str(number))
    return number


@plugin.tool(side_effects="write", timeout_s=50, idle_timeout_s={idle_s})
def say(path: str, count: int, size: int, ctx: Context) -> int:
    \"\"\"Says so many things.\"\"\"
    return _say(path, count, size, ctx)


@plugin.tool(side_effects="write", isolation="process", timeout_s=50)
def tell(path: str, count: int, size: int, ctx: Context) -> int:
    \"\"\"The same in a process that serves others as well.\"\"\"
    return _say(path, count, size, ctx)


@plugin.tool(side_effects="write", timeout_s=50)
def wait(path: str, before: int, ctx: Context) -> str:
    \"\"\"Says some, waits for a file, and says one more.\"\"\"
    for number in range(before):
        ctx.update(f"before {number + 1}")
    while not os.path.exists(path):
        ctx.sleep(0.01)
        if before < 3:
            ctx.update("waiting")
    ctx.update("after")
    return "done"
"""
BOUND_S = 60
IDLE_S = 3
"""More than a busy machine keeps a tool that has something to say from saying it."""
MANY, SIZE = 2_000, 8_000
"""16 MB: far more than pipe, window, HTTP/2 and sockets hold."""


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("things")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o777)
    return folder


@pytest.fixture(scope="module")
def sidecar(things: Path) -> Iterator[Sidecar]:
    plugin = write_plugin(things / "talker", "talker", CODE.replace("{idle_s}", str(IDLE_S)))
    (things / "w").mkdir()
    (things / "w").chmod(0o777)
    allowed = "".join(f'[plugin.tools.{name}]\npermission = "allow"\n' for name in ("say", "tell", "wait"))
    lines = f'max_side_effects = "write"\nwrite = ["{things}/w"]\n{allowed}'
    with running_sidecar([(plugin, lines)]) as sidecar:
        yield sidecar


@pytest.fixture
async def channel(sidecar: Sidecar) -> AsyncIterator[grpc.aio.Channel]:
    async with asyncio.timeout(BOUND_S), sidecar.channel() as channel:
        yield channel


def call(tool: str, path: Path, call_id: str = "", **more: Any) -> pb.CallToolRequest:
    arguments = {"path": str(path), "count": MANY, "size": SIZE} | more
    if tool == "wait":
        arguments = {"path": str(path), "before": more["before"]}
    return pb.CallToolRequest(tool=tool, arguments_json=json.dumps(arguments), call_id=call_id)


async def said(path: Path, still_s: float = 0.3) -> int:
    """How many updates the tool has got rid of, once that stays as it is for so long: it waits."""
    before, now = -2, -1
    while now < 0 or now != before:
        await asyncio.sleep(still_s)
        before, now = now, int(path.read_text() or 0) if path.exists() else -1
    return now


async def rest_of(stream: Any) -> list[Any]:
    events = []
    while (event := await stream.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
        events.append(event)
    return events


def sequences(events: list[Any]) -> list[int]:
    return [each.update.sequence for each in events if each.HasField("update")]


async def test_a_stream_that_stops_reading_has_its_tool_wait_and_loses_nothing(
    channel: grpc.aio.Channel, sidecar: Sidecar, things: Path
) -> None:
    stub: Any = ToolServiceStub(channel)
    slow = stub.StreamTool(pb.StreamToolRequest(call=call("say", things / "w" / "slow")))
    assert (await slow.read()).HasField("started")
    assert await said(things / "w" / "slow", still_s=IDLE_S + 0.5) < MANY  # nor is that silence its idle timeout
    async with sidecar.channel() as other:  # beside it, one that reads
        quick = ToolServiceStub(other).StreamTool(pb.StreamToolRequest(call=call("say", things / "w" / "quick")))  # type: ignore[no-untyped-call]
        events = [each async for each in quick]
    assert sequences(events) == list(range(1, MANY + 1))
    assert (events[1].update.unit, events[-1].finished.details_json) == ("lines", str(MANY))

    rest = await rest_of(slow)
    assert sequences(rest) == list(range(1, MANY + 1))
    assert rest[-1].finished.details_json == str(MANY)


async def test_a_session_that_stops_reading_has_its_tool_wait_and_loses_nothing(
    channel: grpc.aio.Channel, sidecar: Sidecar, things: Path
) -> None:
    stub: Any = ToolServiceStub(channel)
    slow = stub.Session()
    await slow.write(pb.SessionRequest(call=call("say", things / "w" / "held", "held"), updates=True))
    assert await said(things / "w" / "held") < MANY
    async with sidecar.channel() as other:
        quick: Any = ToolServiceStub(other)
        answer = await quick.CallTool(call("say", things / "w" / "beside", count=3))
        assert answer.result.details_json == "3"
    await slow.done_writing()
    rest = await rest_of(slow)
    assert sequences(rest) == list(range(1, MANY + 1))
    assert rest[-1].finished.details_json == str(MANY)


async def test_a_tool_that_is_held_ends_at_its_deadline_and_at_its_cancellation(
    channel: grpc.aio.Channel, things: Path
) -> None:
    stub: Any = ToolServiceStub(channel)
    # Far more than gRPC's windows grow to, and than could be said between a deadline and a late look at it.
    endless = 100 * MANY
    late = call("say", things / "w" / "late", "late", count=endless)
    late.timeout.FromSeconds(2)
    stream = stub.StreamTool(pb.StreamToolRequest(call=late))
    cancelled = call("say", things / "w" / "cancelled", "cancelled", count=endless)
    other = stub.StreamTool(pb.StreamToolRequest(call=cancelled))
    for each in (stream, other):
        assert (await each.read()).HasField("started")
    assert await said(things / "w" / "cancelled") < endless
    await stub.CancelCall(pb.CancelCallRequest(call_id="cancelled"))
    ends = [(await stub.GetCall(pb.GetCallRequest(call_id=each, wait=True))).result for each in ("late", "cancelled")]
    assert [each.error.code for each in ends] == ["TOOL_TIMEOUT", "CANCELLED_SIGNAL"]


async def test_a_process_that_serves_others_is_not_held_and_a_gap_tells_what_was_dropped(
    channel: grpc.aio.Channel, things: Path
) -> None:
    stub: Any = ToolServiceStub(channel)
    slow = stub.StreamTool(pb.StreamToolRequest(call=call("tell", things / "w" / "gap", "gap")))
    assert (await slow.read()).HasField("started")
    ended = await stub.GetCall(pb.GetCallRequest(call_id="gap", wait=True))
    assert ended.result.details_json == str(MANY)  # it did not wait
    numbers = sequences(await rest_of(slow))
    assert numbers == sorted(set(numbers))
    assert len(numbers) < MANY
    assert numbers[-1] == MANY


async def test_a_caller_that_comes_back_goes_on_after_the_update_that_it_has(
    sidecar: Sidecar, channel: grpc.aio.Channel, things: Path
) -> None:
    request = call("wait", things / "w" / "go", "back", before=5)
    request.continue_if_disconnected = True
    async with sidecar.channel() as lost:
        stub: Any = ToolServiceStub(lost)
        stream = stub.StreamTool(pb.StreamToolRequest(call=request), timeout=BOUND_S)
        events = [await stream.read() for _ in range(4)]
        assert not events[0].started.joined
        assert sequences(events) == [1, 2, 3]
    again: Any = ToolServiceStub(channel)
    stream = again.StreamTool(pb.StreamToolRequest(call=request, after_sequence=3))
    started = (await stream.read()).started
    assert (started.joined, started.missed_updates) == (True, 0)
    assert (await stream.read()).update.sequence == 4
    (things / "w" / "go").touch()
    rest = await rest_of(stream)
    assert sequences(rest) == [5, 6]
    assert rest[-1].finished.content[0].text == "done"

    # After its end there is the outcome alone.
    events = [each async for each in again.StreamTool(pb.StreamToolRequest(call=request, after_sequence=3))]
    assert [each.WhichOneof("event") for each in events] == ["started", "finished"]
    other = call("wait", things / "w" / "other", "back", before=5)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await again.CallTool(other)
    assert reason_of(caught.value) == "CALL_ID_IN_USE"


async def test_a_call_whose_caller_leaves_ends_unless_it_was_to_go_on(
    sidecar: Sidecar, channel: grpc.aio.Channel, things: Path
) -> None:
    stays = call("wait", things / "w" / "stays", "stays", before=1)
    stays.continue_if_disconnected = True
    leaves = call("wait", things / "w" / "leaves", "leaves", before=1)
    stub: Any = ToolServiceStub(channel)
    async with sidecar.channel() as lost:
        left: Any = ToolServiceStub(lost)
        for each in (stays, leaves):
            stream = left.StreamTool(pb.StreamToolRequest(call=each))
            assert [(await stream.read()).WhichOneof("event") for _ in range(2)] == ["started", "update"]
    ended = (await stub.GetCall(pb.GetCallRequest(call_id="leaves", wait=True))).result
    assert ended.error.code == "CANCELLED_SIGNAL"
    assert (await stub.GetCall(pb.GetCallRequest(call_id="stays"))).state == pb.CALL_STATE_RUNNING
    (things / "w" / "stays").touch()
    assert (await stub.GetCall(pb.GetCallRequest(call_id="stays", wait=True))).result.content[0].text == "done"
    stays.call_id = ""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CallTool(stays)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_is_no_longer_kept_for_one_that_comes_back_is_counted(
    sidecar: Sidecar, channel: grpc.aio.Channel, things: Path
) -> None:
    request = call("wait", things / "w" / "much", "much", before=1_000)
    request.continue_if_disconnected = True
    async with sidecar.channel() as lost:
        stub: Any = ToolServiceStub(lost)
        stream = stub.StreamTool(pb.StreamToolRequest(call=request))
        assert [(await stream.read()).WhichOneof("event") for _ in range(2)] == ["started", "update"]
    again: Any = ToolServiceStub(channel)
    while True:  # until the tool has said all of it to nobody
        stream = again.StreamTool(pb.StreamToolRequest(call=request, after_sequence=1))
        missed, number = (await stream.read()).started.missed_updates, (await stream.read()).update.sequence
        assert number == missed + 2
        if number > 700:
            break
        stream.cancel()
    (things / "w" / "much").touch()
    assert sequences(await rest_of(stream)) == list(range(number + 1, 1_002))
