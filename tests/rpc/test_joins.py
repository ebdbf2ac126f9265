"""Requests that wait and start no call of their own: each has a place, gives it back, and leaves some to others."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import grpc
import pytest
from fumehood.v1 import plugin_service_pb2 as plugins_pb
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc.plugin_service import MAX_RELOADS_OF_CONNECTION
from fumehood_server.rpc.reading import MAX_OUTCOME_WAITS

from tests.rpc.support import BOUND_S, call, reason_of, text_of
from tests.sidecar import Sidecar, running_sidecar

PLACES = 16
MOST = 12
"""Of one connection."""
ADDRESSES = 'listen = ["127.0.0.1:0"]\n'
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
HELD = {"seconds": 3600}


def connection(sidecar: Sidecar) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(sidecar.target, options=OWN_CONNECTION)


async def end_of(stream: grpc.aio.UnaryStreamCall[pb.StreamToolRequest, pb.StreamToolResponse]) -> str:
    """How it begins: "joined", "started", or why it was refused."""
    try:
        first = await stream.read()
    except grpc.aio.AioRpcError as error:
        return reason_of(error)
    return "joined" if first.started.joined else "started"


async def test_requests_that_join_a_call_have_places_and_give_them_back(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server=f"{ADDRESSES}max_concurrent_calls = {PLACES}") as sidecar:
        async with connection(sidecar) as greedy, connection(sidecar) as other, asyncio.timeout(2 * BOUND_S):
            tools, modest = ToolServiceStub(greedy), ToolServiceStub(other)
            held = pb.StreamToolRequest(call=call("wait", HELD, call_id="held"))
            first = modest.StreamTool(held)
            assert await end_of(first) == "started"
            for _ in range(3):
                streams = [tools.StreamTool(held) for _ in range(PLACES)]
                ends = Counter(await asyncio.gather(*map(end_of, streams)))
                assert set(ends) == {"joined", "TOO_MANY_CALLS"}
                assert PLACES // 2 < ends["joined"] < MOST
                assert text_of((await modest.CallTool(call("echo", {"text": "hi"}))).result) == "hi"
                for stream in streams:
                    stream.cancel()
                while await _is_refused(tools, held):  # those that left are told of it in their turn
                    pass
            unary = [asyncio.ensure_future(tools.CallTool(held.call)) for _ in range(3)]
            await modest.CancelCall(pb.CancelCallRequest(call_id="held"))
            ended = {(await each).result.error.code for each in unary}
            assert ended == {"CANCELLED_SIGNAL"}
            waiting = {asyncio.ensure_future(tools.CallTool(call("wait", HELD))) for _ in range(PLACES)}
            while len(waiting) > MOST:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert len(waiting) == MOST


async def _is_refused(tools: ToolServiceStub, request: pb.StreamToolRequest) -> bool:
    stream = tools.StreamTool(request)
    end = await end_of(stream)
    stream.cancel()
    return end != "joined"


async def test_requests_that_wait_for_a_call_leave_places_to_others(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server=ADDRESSES) as sidecar:
        async with connection(sidecar) as greedy, connection(sidecar) as other, asyncio.timeout(2 * BOUND_S):
            tools, modest = ToolServiceStub(greedy), ToolServiceStub(other)
            first = modest.StreamTool(pb.StreamToolRequest(call=call("wait", HELD, call_id="held")))
            assert await end_of(first) == "started"
            wanted = pb.GetCallRequest(call_id="held", wait=True)
            waits = [asyncio.ensure_future(tools.GetCall(wanted)) for _ in range(MAX_OUTCOME_WAITS)]
            done, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            assert (await modest.GetCall(pb.GetCallRequest(call_id="held"))).state == pb.CALL_STATE_RUNNING
            await modest.CancelCall(pb.CancelCallRequest(call_id="held"))
            ends = Counter()
            for each in (*done, *waiting):
                try:
                    ends[(await each).result.error.code] += 1
                except grpc.aio.AioRpcError as error:
                    ends[reason_of(error)] += 1
            assert set(ends) == {"CANCELLED_SIGNAL", "TOO_MANY_STREAMS"}
            assert MAX_OUTCOME_WAITS // 2 < ends["CANCELLED_SIGNAL"] < MAX_OUTCOME_WAITS
            assert (await tools.GetCall(wanted)).state == pb.CALL_STATE_ENDED


async def test_requests_that_wait_for_a_call_keep_nobody_from_other_methods(plugin_folder: Path) -> None:
    listen = 'listen = ["unix:agents.sock", "unix:operator.sock"]\n'
    with running_sidecar([plugin_folder], server=listen) as sidecar:
        channels = [grpc.aio.insecure_channel(target, options=OWN_CONNECTION) for target in sidecar.targets]
        async with channels[0] as agents, channels[1] as operator, asyncio.timeout(2 * BOUND_S):
            tools = ToolServiceStub(agents)
            assert await end_of(tools.StreamTool(pb.StreamToolRequest(call=call("wait", HELD, call_id="held"))))
            wanted = pb.GetCallRequest(call_id="held", wait=True)
            waits = [asyncio.ensure_future(tools.GetCall(wanted)) for _ in range(MAX_OUTCOME_WAITS)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await tools.GetCall(wanted)
            assert reason_of(refused.value) == "TOO_MANY_STREAMS"
            assert (await tools.GetCall(pb.GetCallRequest(call_id="held"))).state == pb.CALL_STATE_RUNNING
            disable = plugins_pb.DisablePluginRequest(name="speech")
            assert (await PluginServiceStub(agents).DisablePlugin(disable)).plugin.name == "speech"
            ended = asyncio.ensure_future(ToolServiceStub(operator).GetCall(wanted))
            await tools.CancelCall(pb.CancelCallRequest(call_id="held"))
            assert (await ended).result.error.code == "CANCELLED_SIGNAL"
            await asyncio.gather(*waits, return_exceptions=True)


async def test_reloads_of_one_connection_leave_a_turn_to_others(plugin_folder: Path) -> None:
    with running_sidecar([plugin_folder], server=ADDRESSES) as sidecar:
        async with connection(sidecar) as greedy, connection(sidecar) as other, asyncio.timeout(2 * BOUND_S):
            request = plugins_pb.ReloadPluginRequest(name="speech")
            many = [asyncio.ensure_future(PluginServiceStub(greedy).ReloadPlugin(request)) for _ in range(200)]
            await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
            assert (await PluginServiceStub(other).ReloadPlugin(request)).plugin.name == "speech"
            done = [each.exception() for each in many if each.done()]
            refusals = [reason_of(error) for error in done if isinstance(error, grpc.aio.AioRpcError)]
            assert set(refusals) == {"TOO_MANY_STREAMS"}
            assert len(refusals) > 200 - 10 * MAX_RELOADS_OF_CONNECTION
            await asyncio.wait(many)
