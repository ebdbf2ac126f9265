"""The session client that docs/clients.md tells people to copy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from examples.clients.python.session import RefusedError, Session, SessionEndedError
from tests.rpc.support import BOUND_S, logged, text_of
from tests.sidecar import Sidecar, running_sidecar


@pytest.fixture
async def session(tools: ToolServiceStub) -> AsyncIterator[Session]:
    async with asyncio.timeout(BOUND_S), Session(tools.Session()) as session:
        yield session


def echo(session: Session, text: str) -> asyncio.Task[str]:
    async def call() -> str:
        return text_of(await session.call("echo", json.dumps({"text": text})))

    return asyncio.create_task(call())


async def test_each_of_many_calls_gets_its_own_answer(session: Session) -> None:
    texts = [str(number) for number in range(120)]
    assert await asyncio.gather(*(echo(session, text) for text in texts)) == texts
    assert await echo(session, "once more") == "once more"


async def test_calls_that_are_large_together_end_no_session(session: Session) -> None:
    texts = [str(number) * 30_000 for number in range(10, 70)]
    assert await asyncio.gather(*(echo(session, text) for text in texts)) == texts


async def test_cancelled_task_cancels_its_call_and_no_other(
    session: Session, tools: ToolServiceStub, sidecar: Sidecar
) -> None:
    others = [echo(session, str(number)) for number in range(5)]
    waiting = asyncio.create_task(session.call("wait", '{"seconds": 60}'))
    assert await asyncio.gather(*others) == [str(number) for number in range(5)]
    (call_id,) = session._waiting
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await logged(sidecar, tools, call_id, "CANCELLED_SIGNAL")
    assert await echo(session, "next") == "next"


async def test_answer_that_comes_as_its_caller_is_cancelled_ends_no_session(session: Session) -> None:
    waiting = asyncio.create_task(session.call("wait", '{"seconds": 2}'))
    assert await echo(session, "begun") == "begun"
    (call_id,) = session._waiting
    waiting.cancel()
    session._hear(pb.SessionResponse(finished=tool_pb2.ToolResult(call_id=call_id)))
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await echo(session, "next") == "next"


async def test_sessions_side_by_side_take_no_ids_from_each_other(session: Session, tools: ToolServiceStub) -> None:
    async with Session(tools.Session()) as second:
        slow = asyncio.create_task(session.call("wait", '{"seconds": 0.2}'))
        assert await asyncio.gather(*(echo(each, "x") for each in (second, session))) == ["x", "x"]
        assert text_of(await slow) == "waited"


async def test_timeout_of_a_call_is_its_own(session: Session) -> None:
    result = await session.call("wait", '{"seconds": 60}', timeout_s=0.05)
    assert result.error.code == "TOOL_TIMEOUT"
    assert await echo(session, "next") == "next"


async def test_refused_call_is_told_by_what_it_was_refused_for(session: Session) -> None:
    with pytest.raises(RefusedError) as caught:
        await session.call("", "{}")
    assert (caught.value.code, caught.value.retryable) == ("REQUEST_INVALID", False)
    assert await echo(session, "next") == "next"


async def test_calls_whose_session_ends_are_told_and_later_ones_as_well(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder]) as sidecar:
        async with sidecar.channel() as channel, Session(ToolServiceStub(channel).Session()) as session:
            waiting = [asyncio.create_task(session.call("wait", '{"seconds": 60}')) for _ in range(3)]
            assert await echo(session, "begun") == "begun"
            sidecar.process.kill()
            for call in waiting:
                with pytest.raises(SessionEndedError, match="UNAVAILABLE"):
                    await asyncio.wait_for(call, BOUND_S)
            with pytest.raises(SessionEndedError):
                await asyncio.wait_for(session.call("echo", "{}"), BOUND_S)


async def test_leaving_waits_for_calls_and_an_exception_ends_them(tools: ToolServiceStub) -> None:
    async with Session(tools.Session()) as session:
        slow = asyncio.create_task(session.call("wait", '{"seconds": 0.2}'))
        await echo(session, "begun")
    assert text_of(await asyncio.wait_for(slow, BOUND_S)) == "waited"

    async def fail() -> None:
        async with Session(tools.Session()) as session:
            stuck.append(asyncio.create_task(session.call("wait", '{"seconds": 60}')))
            await echo(session, "begun")
            raise ZeroDivisionError

    stuck: list[asyncio.Task[object]] = []
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(fail(), BOUND_S)
    with pytest.raises(SessionEndedError):
        await asyncio.wait_for(stuck[0], BOUND_S)
