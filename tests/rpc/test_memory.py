"""Callers that don't read their answers, or don't finish their requests: the sidecar's memory has a bound."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc.reading import MAX_ARRIVING
from fumehood_server.rpc.unread import MARGIN_BYTES, MAX_CONNECTION_BYTES, MAX_UNIX_BYTES

from tests.rpc.http2 import END_STREAM, HEADERS, Http2, message
from tests.rpc.support import BOUND_S, call, reason_of, refused, text_of
from tests.sidecar import Sidecar, running_sidecar

CALL_TOOL = "/fumehood.v1.ToolService/CallTool"
RESULT_BYTES = 1_000_000
COPIES = 2
"""An answer that gRPC sends is there as Python's bytes and as gRPC's."""
KEPT_BYTES = 40 * 1024 * 1024
"""What a sidecar whose callers have all gone may have more than before its first call: 11 MiB were seen."""

OWN_BYTES = 500 * 1024 * 1024
"""The sidecar itself, what calls need on their way, also into the journal, and what the allocator keeps: the slower
the machine, the more calls are on their way at once. 421 MiB were seen beside other work."""


@pytest.fixture(scope="module")
def sidecar(plugin_folder: Path) -> Iterator[Sidecar]:
    # The journal keeps no payloads of `shout`, whose time on the disk nobody looks at here.
    plugin = (plugin_folder, '[plugin.tools.shout]\npayloads = "hash"\n')
    with running_sidecar([plugin], server='listen = ["unix:s", "127.0.0.1:0"]') as sidecar:
        yield sidecar


@pytest.fixture(scope="module", autouse=True)
def at_start(sidecar: Sidecar) -> int:
    """The sidecar's memory before any of these tests has called."""
    return memory(sidecar)


def large(**fields: str) -> pb.CallToolRequest:
    # Its text is in the result twice: as content and as details.
    return call("shout", {"size": RESULT_BYTES // 2}, **fields)


def memory(sidecar: Sidecar) -> int:
    return psutil.Process(sidecar.process.pid).memory_info().rss


async def control(target: str) -> str:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        answer = await ToolServiceStub(channel).CallTool(call("echo", {"text": "hi"}), timeout=BOUND_S)
    return text_of(answer.result)


async def settled(target: str) -> str:
    """The same once the sidecar has seen that a connection is gone."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                return await control(target)
            await asyncio.sleep(0.02)


def begun_answers(connection: Http2, count: int) -> int:
    """Wait for the head of so many answers. Returns how many of them are refusals, which have nothing else."""
    refused = 0
    for _ in range(count):
        while (received := connection.receive())[0] != HEADERS:
            pass
        refused += bool(received[1] & END_STREAM)
    return refused


@pytest.mark.parametrize("address", [0, 1])
async def test_unread_answers_of_one_caller_are_bounded_and_its_calls_refused(sidecar: Sidecar, address: int) -> None:
    limit = MAX_CONNECTION_BYTES if address else MAX_UNIX_BYTES
    count = (limit + MARGIN_BYTES) // RESULT_BYTES + 20
    with Http2(sidecar.targets[address], window=0) as connection:
        for _ in range(count):
            connection.request(CALL_TOOL, message(large().SerializeToString()))
        refusals = await asyncio.to_thread(begun_answers, connection, count)
        assert 20 <= refusals < count
        assert memory(sidecar) < COPIES * (limit + MARGIN_BYTES) + OWN_BYTES
        connection.request(CALL_TOOL, message(call("echo", {"text": "hi"}).SerializeToString()))
        assert await asyncio.to_thread(begun_answers, connection, 1) == 1
        assert await control(sidecar.targets[1 - address]) == "hi"
        if not address:
            assert await refused(control(sidecar.targets[0])) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "ANSWERS_UNREAD",
            )
    assert await settled(sidecar.targets[address]) == "hi"


async def test_of_connections_that_together_leave_too_much_unread_one_is_closed(sidecar: Sidecar) -> None:
    with contextlib.ExitStack() as stack:
        each = [stack.enter_context(Http2(sidecar.targets[1], window=0)) for _ in range(2)]
        for _ in range(60):
            for connection in each:
                connection.request(CALL_TOOL, message(large().SerializeToString()))
        ends = [asyncio.create_task(asyncio.to_thread(connection.closed)) for connection in each]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert [end.result() for end in done] == [True]
        line = await asyncio.to_thread(sidecar.logged, event="connection_closed")
        assert line["peer"].startswith("ipv4:127.0.0.1:")
        assert await control(sidecar.targets[1]) == "hi"
        for connection in each:
            connection.shut_down()
        await asyncio.wait(ends)


async def test_a_session_that_is_not_read_is_ended_with_a_reason(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        session = ToolServiceStub(channel).Session()
        # In one message, since no other is read while much is unread.
        requests = [pb.SessionRequest(call=large(call_id=f"unread-{number}")) for number in range(128)]
        await session.write(pb.SessionRequest(combined=pb.SessionRequests(requests=requests)))
        async with asyncio.timeout(BOUND_S):
            while sum(line.get("call_id", "").startswith("unread-") for line in sidecar.log()) < 128:  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(0.1)
            assert await control(sidecar.targets[1]) == "hi"
            read = 0
            try:
                while await session.read() is not grpc.aio.EOF:
                    read += 1
            except grpc.aio.AioRpcError as exc:
                ended = exc
    assert ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reason_of(ended) == "ANSWER_DROPPED"
    assert 0 < read < 128
    async with sidecar.channel() as channel:
        session = ToolServiceStub(channel).Session()
        for _ in range((MAX_UNIX_BYTES + MARGIN_BYTES) // RESULT_BYTES + 1):
            await session.write(pb.SessionRequest(call=large()))
            answer = await session.read()
            assert not answer.finished.is_error


async def test_memory_is_given_back_when_the_callers_have_gone(sidecar: Sidecar, at_start: int) -> None:
    with Http2(sidecar.targets[0], window=0) as connection:
        for _ in range(60):
            connection.request(CALL_TOOL, message(large().SerializeToString()))
        await asyncio.to_thread(begun_answers, connection, 60)
        held = memory(sidecar)
        assert held > 60 * RESULT_BYTES * COPIES
    deadline = time.monotonic() + BOUND_S
    while (kept := memory(sidecar) - at_start) > KEPT_BYTES:
        assert time.monotonic() < deadline, f"of {held - at_start} bytes {kept} are still held: {sidecar.log()[-5:]}"
        await settled(sidecar.targets[0])
        await asyncio.sleep(0.1)


async def test_requests_that_never_end_make_room_for_others(sidecar: Sidecar) -> None:
    head = message(b"\xff" * 600_000)[:-1]
    with Http2(sidecar.targets[1]) as connection:
        streams = [connection.request(CALL_TOOL, end=False) for _ in range(MAX_ARRIVING + 100)]
        ended = await asyncio.to_thread(connection.send_within_windows, head, streams)
        assert len(ended) == 100
        # One that has just come may overtake those that wait for gRPC to hand them over, by a race in its core.
        assert len(ended & set(streams[:100])) > 80
        assert memory(sidecar) < MAX_ARRIVING * len(head) + OWN_BYTES
        for address in sidecar.targets:
            assert await control(address) == "hi"
        connection.socket.sendall(connection.finish(streams[-1]))
        while (received := connection.receive())[0] != HEADERS or received[2] != streams[-1]:
            pass
        assert b"not a message" in received[3]


async def test_a_request_without_a_message_is_refused(sidecar: Sidecar) -> None:
    with Http2(sidecar.targets[0]) as connection:
        connection.request(CALL_TOOL)
        while (received := connection.receive())[0] != HEADERS:
            pass
        assert b"without a request" in received[3]


async def test_recorded_outcomes_that_are_asked_for_and_not_read_are_bounded(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel:
        text = {"text": "x" * (RESULT_BYTES // 20), "times": 10}
        await ToolServiceStub(channel).CallTool(call("echo", text, call_id="kept"))
    count = (MAX_CONNECTION_BYTES + MARGIN_BYTES) // RESULT_BYTES + 10
    asked = pb.GetCallRequest(call_id="kept").SerializeToString()
    with Http2(sidecar.targets[1], window=0) as connection:
        for _ in range(count):
            connection.request("/fumehood.v1.ToolService/GetCall", message(asked))
        refusals = await asyncio.to_thread(begun_answers, connection, count)
        assert 10 <= refusals < count
        async with sidecar.channel() as channel:
            found = await ToolServiceStub(channel).GetCall(pb.GetCallRequest(call_id="kept"))
        assert len(text_of(found.result)) == RESULT_BYTES // 2
