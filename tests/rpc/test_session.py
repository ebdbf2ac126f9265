from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import BOUND_S, POLL_S, call, logged, text_of
from tests.sidecar import Sidecar, running_sidecar


def asked(
    tool: str, arguments: dict[str, object] | None = None, *, updates: bool = False, **fields: str
) -> pb.SessionRequest:
    return pb.SessionRequest(call=call(tool, arguments, **fields), updates=updates)


async def test_calls_are_answered_as_they_finish(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(asked("wait", {"seconds": 2}, call_id="slow"))
    await session.write(asked("echo", {"text": "quick"}, call_id="quick"))
    first, second = await session.read(), await session.read()
    assert (first.finished.call_id, text_of(first.finished)) == ("quick", "quick")
    assert (second.finished.call_id, text_of(second.finished)) == ("slow", "waited")
    await session.done_writing()
    assert await session.read() is grpc.aio.EOF
    assert await session.code() is grpc.StatusCode.OK


async def test_half_closing_lets_calls_finish(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    for index in range(20):
        await session.write(asked("wait", {"seconds": 0.1}, call_id=f"half-{index}"))
    await session.done_writing()
    answers = [answer async for answer in session]
    assert {answer.finished.call_id for answer in answers} == {f"half-{index}" for index in range(20)}
    assert all(text_of(answer.finished) == "waited" for answer in answers)


async def test_a_thousand_calls_are_each_answered_once(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    answers: list[pb.SessionResponse] = []
    free = asyncio.Semaphore(32)

    async def read() -> None:
        async for answer in session:
            answers.append(answer)
            free.release()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        for index in range(1000):
            await free.acquire()
            await session.write(asked("echo", {"text": str(index)}, call_id=str(index)))
        await session.done_writing()
    assert sorted(int(answer.finished.call_id) for answer in answers) == list(range(1000))
    assert all(text_of(answer.finished) == answer.finished.call_id for answer in answers)


async def test_updates_come_only_where_they_are_wanted(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(asked("chatter", {"count": 3}, call_id="loud", updates=True))
    await session.write(asked("chatter", {"count": 3}, call_id="quiet"))
    await session.done_writing()
    answers = [answer async for answer in session]
    said = [answer.update for answer in answers if answer.HasField("update")]
    assert [(update.call_id, update.sequence) for update in said] == [("loud", 1), ("loud", 2), ("loud", 3)]
    assert {answer.finished.call_id for answer in answers if answer.HasField("finished")} == {"loud", "quiet"}


async def test_a_call_is_cancelled_within_its_session(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(asked("wait", {"seconds": 60}, call_id="within"))
    await session.write(pb.SessionRequest(cancel=pb.CancelCallRequest(call_id="within")))
    assert (await session.read()).finished.error.code == "CANCELLED_SIGNAL"
    await session.done_writing()
    assert await session.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    ("request_", "code", "reason", "call_id"),
    [
        (pb.SessionRequest(), grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID", ""),
        (asked("", call_id="no-tool"), grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID", "no-tool"),
        (
            pb.SessionRequest(cancel=pb.CancelCallRequest(call_id="nobody")),
            grpc.StatusCode.NOT_FOUND,
            "CALL_NOT_FOUND",
            "nobody",
        ),
    ],
)
async def test_a_refusal_leaves_the_session_open(
    tools: ToolServiceStub, request_: pb.SessionRequest, code: grpc.StatusCode, reason: str, call_id: str
) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(request_)
    refused = (await session.read()).refused
    assert (refused.call_id, refused.status_code, refused.error.code) == (call_id, code.value[0], reason)
    assert refused.error.category
    await session.write(asked("echo", {"text": "still here"}))
    assert text_of((await session.read()).finished) == "still here"
    await session.done_writing()


async def test_an_id_in_use_is_refused_and_the_first_call_goes_on(tools: ToolServiceStub) -> None:
    session = tools.Session(timeout=BOUND_S)
    await session.write(asked("wait", {"seconds": 2}, call_id="same"))
    await session.write(asked("echo", {"text": "x"}, call_id="same"))
    assert (await session.read()).refused.error.code == "CALL_ID_IN_USE"
    assert text_of((await session.read()).finished) == "waited"
    await session.done_writing()


async def test_the_end_of_the_stream_cancels_its_calls(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    session = tools.Session()
    await session.write(asked("wait", {"seconds": 60}, call_id="orphan", updates=True))
    assert (await session.read()).update.message == "begun"
    session.cancel()
    await logged(sidecar, tools, "orphan", "CANCELLED_SIGNAL")
    assert "Traceback" not in sidecar.stderr()


async def test_the_deadline_of_the_stream_bounds_its_calls(tools: ToolServiceStub, sidecar: Sidecar) -> None:
    await tools.CallTool(call("echo", {"text": "connected"}), timeout=BOUND_S)
    session = tools.Session(timeout=2.0)  # in which the call comes to the sidecar
    await session.write(asked("wait", {"seconds": 60}, call_id="bounded"))
    try:
        while (answer := await session.read()) is not grpc.aio.EOF:
            assert answer.finished.error.code == "CANCELLED_TIMEOUT"
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017 - either side may be first
    await logged(sidecar, tools, "bounded", "CANCELLED_TIMEOUT")


async def test_requests_are_not_read_while_answers_pile_up(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server="max_concurrent_calls = 4") as sidecar:
        async with sidecar.channel() as channel:
            tools = ToolServiceStub(channel)
            session = tools.Session()
            writing = asyncio.create_task(_write_many(session, asked("shout", {"size": 900_000})))
            served = -1
            async with asyncio.timeout(BOUND_S):
                # Fifty looks without one more call served: the sidecar waits for its reader.
                still = 0
                while served <= 0 or still < 50:
                    await asyncio.sleep(POLL_S)
                    await tools.GetTool(pb.GetToolRequest(name="echo"))
                    now = len([line for line in sidecar.log() if line.get("tool") == "shout"])
                    still = still + 1 if now == served else 0
                    served = now
            assert served < 100
            writing.cancel()
            session.cancel()


async def test_a_session_whose_reader_reads_nothing_leaves_others_their_place(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server="max_concurrent_calls = 4") as sidecar:
        async with sidecar.channel() as channel, sidecar.channel() as another:
            tools, others = ToolServiceStub(channel), ToolServiceStub(another)
            session = tools.Session()
            for index in range(300):
                await session.write(asked("wait", {"seconds": 60}, call_id=f"held-{index}"))
            # More than it may have were asked for, and nobody reads the refusals.
            for text in ("one", "two", "three"):
                answer = await others.CallTool(call("echo", {"text": text}), timeout=BOUND_S)
                assert text_of(answer.result) == text
            second = others.Session(timeout=BOUND_S)
            await second.write(asked("echo", {"text": "beside"}))
            assert text_of((await second.read()).finished) == "beside"
            await second.done_writing()
            refused = (await session.read()).refused
            assert (refused.call_id, refused.error.code, refused.error.retryable) == ("held-2", "TOO_MANY_CALLS", True)
            assert refused.status_code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
            assert "2 calls of this session are under way" in refused.error.message
            await session.write(pb.SessionRequest(cancel=pb.CancelCallRequest(call_id="held-0")))
            while not (answer := await session.read()).HasField("finished"):
                assert answer.refused.error.code == "TOO_MANY_CALLS"
            assert (answer.finished.call_id, answer.finished.error.code) == ("held-0", "CANCELLED_SIGNAL")
            await session.write(asked("echo", {"text": "a place again"}))
            assert text_of((await session.read()).finished) == "a place again"
            session.cancel()


async def _write_many(session: grpc.aio.StreamStreamCall, request: pb.SessionRequest) -> None:
    for _ in range(2000):
        await session.write(request)
