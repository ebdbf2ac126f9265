"""One id, sent at once by every way there is, or while the sidecar is killed: one outcome, one effect, one use."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from typing import Any

import grpc
import pytest
from fumehood.v1 import approval_service_pb2 as apb
from fumehood.v1 import tool_pb2
from fumehood.v1 import tool_service_pb2 as pb

from tests.journal.reading import Recorded
from tests.rpc.support import reason_of
from tests.sidecar import write_plugin

from .support import BOUND_S, Client, Place, client_of

IN_USE = "CALL_ID_IN_USE"
RULES = """
[[policy.rule]]
name = "free"
permission = "allow"
tools = ["note"]
when = [{ pointer = "/line", pattern = "^free" }]
"""
ONE_AT_A_TIME = """
import time
from pathlib import Path
from fumehood_sdk import Plugin

plugin = Plugin("diary", version="1.0.0", concurrency=1)


@plugin.tool(side_effects="write", isolation="process", sequential=True)
def note(folder: str, line: str, amount: int = 0) -> int:
    \"\"\"Adds a line, and waits while there is a file `hold`.\"\"\"
    with (Path(folder) / "diary").open("a") as file:
        file.write(line + "\\n")
    while (Path(folder) / "hold").exists():
        time.sleep(0.01)
    return 1
"""


Told = tool_pb2.ToolResult | str
"""The result, or why the request was refused."""


async def by_call(client: Client, request: pb.CallToolRequest) -> Told:
    return await client.call(request)


async def by_stream(client: Client, request: pb.CallToolRequest) -> Told:
    stream = client.tools.StreamTool(pb.StreamToolRequest(call=request), timeout=BOUND_S)
    async for event in stream:
        if event.HasField("finished"):
            return event.finished  # type: ignore[no-any-return]
    raise AssertionError


async def by_batch(client: Client, request: pb.CallToolRequest) -> Told:
    stream = client.tools.CallTools(pb.CallToolsRequest(calls=[request]), timeout=BOUND_S)
    async for event in stream:
        for answer in event.answers:
            return str(answer.refused.error.code) if answer.HasField("refused") else answer.result
    raise AssertionError


async def by_session(client: Client, request: pb.CallToolRequest) -> Told:
    session: Any = client.tools.Session(timeout=BOUND_S)
    await session.write(pb.SessionRequest(call=request))
    async for event in session:
        if event.HasField("finished"):
            session.cancel()
            return event.finished  # type: ignore[no-any-return]
        if event.HasField("refused"):
            session.cancel()
            return str(event.refused.error.code)
    raise AssertionError


async def told(way: Any, client: Client, request: pb.CallToolRequest) -> Told:
    try:
        result: Told = await way(client, request)
    except grpc.aio.AioRpcError as error:
        return reason_of(error)
    return result


async def test_one_id_by_every_way_at_once_is_one_call_and_other_arguments_are_refused(place: Place) -> None:
    ways = (by_call, by_stream, by_batch, by_session)
    ids = [f"{kind}-{number}" for number in range(6) for kind in ("free", "asked")]

    def asked_for(call_id: str) -> list[pb.CallToolRequest]:
        other = place.call(f"{call_id.replace('-', '+')} other", call_id)
        return [place.call(f"{call_id} one", call_id), other]

    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client, client_of(sidecar) as second:
            deciding = asyncio.create_task(_approve_all(second))
            requests = [
                (call_id, request, way)
                for call_id in ids
                for request in asked_for(call_id)
                for way in ways
                for _ in range(2)
            ]
            answers = await asyncio.gather(*(told(way, client, request) for _, request, way in requests))
            deciding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await deciding
        sidecar.signal()
        sidecar.wait()
    lines = place.lines()
    assert sorted(line.replace("+", "-").split()[0] for line in lines) == sorted(ids)  # one effect each
    for call_id in ids:
        found = [
            (request, answer) for (each, request, _), answer in zip(requests, answers, strict=True) if each == call_id
        ]
        ran = next(request for request, _ in found if any(line in request.arguments_json for line in lines))
        for request, answer in found:
            if request.arguments_json == ran.arguments_json:
                assert not isinstance(answer, str), (call_id, answer)
                assert not answer.is_error, answer.error
            else:
                assert answer == IN_USE, (call_id, answer)
    recorded = Recorded(place.folder)
    for kind in ("execute_start", "execute_end"):
        assert Counter(each["call_id"] for each in recorded.events(kind)) == dict.fromkeys(ids, 1)
    used = Counter(each["call_id"] for each in recorded.events("approval_used"))
    assert used == {call_id: 1 for call_id in ids if call_id.startswith("asked")}
    assert recorded.verified().fault is None


async def _approve_all(client: Client) -> None:
    async for each in client.watch():
        if each.HasField("approval") and each.approval.state == apb.APPROVAL_STATE_PENDING:
            await client.decide(each.approval)


async def test_a_kill_between_the_use_of_an_approval_and_the_dispatch_runs_nothing_and_uses_it_once(
    place: Place,
) -> None:
    write_plugin(place.code, "diary", ONE_AT_A_TIME)
    hold = place.diary / "hold"
    hold.touch()
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client, client_of(sidecar) as second:
            first = asyncio.create_task(client.call(place.call("free first", "first")))
            approval = await second.asked(place.call("next", "next", at_once=True))
            await second.decide(approval)
            while not place.lines():  # noqa: ASYNC110 - nothing tells what another process has done
                await asyncio.sleep(0.01)
            later = asyncio.create_task(client.call(place.call("next", "next")))
            await second.until(approval.approval_id, apb.APPROVAL_STATE_USED)
            sidecar.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(sidecar.process.wait, BOUND_S)
            for each in (first, later):
                with pytest.raises(grpc.aio.AioRpcError):
                    await each
    hold.unlink()
    with place.sidecar(RULES) as sidecar:
        async with client_of(sidecar) as client:
            ran, did_not = [
                (await client.tools.GetCall(pb.GetCallRequest(call_id=call_id))).result for call_id in ("first", "next")
            ]
            assert (ran.error.code, did_not.error.code) == ("TOOL_OUTCOME_UNKNOWN", "TOOL_UNAVAILABLE")
            assert (await client.call(place.call("next", "next"))).error == did_not.error
            another = await client.asked(place.call("next", "another", at_once=True))
            assert another.approval_id != approval.approval_id
            await client.decide(another)
            assert not (await client.call(place.call("next", "another"))).is_error
    assert place.lines() == ["free first", "next"]
    recorded = Recorded(place.folder)
    assert Counter(each["call_id"] for each in recorded.events("approval_used")) == {"next": 1, "another": 1}
    assert recorded.verified().fault is None
