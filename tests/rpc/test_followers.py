"""Many followers of one plugin's log: some are refused, the others lose no line unseen, and nobody else waits."""

from __future__ import annotations

import asyncio

import grpc
from fumehood.v1 import plugin_service_pb2 as pb
from fumehood.v1.plugin_service_pb2_grpc import PluginServiceStub
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub
from fumehood_server.rpc.plugin_service import MAX_FOLLOWERS

from tests.rpc.support import BOUND_S, call, reason_of, text_of
from tests.sidecar import Sidecar

FOLLOWERS = 100
READERS = 5
"""Of those that are not refused: each reads every line."""
LINES = 1100
"""More than are kept for a follower that is late."""

Tail = grpc.aio.UnaryStreamCall[pb.TailPluginLogsRequest, pb.TailPluginLogsResponse]


async def begun(tail: Tail) -> str:
    """What the stream begins with: "line", or why it was refused."""
    try:
        await tail.read()
    except grpc.aio.AioRpcError as exc:
        return reason_of(exc)
    return "line"


async def last_line(plugins: PluginServiceStub) -> str:
    lines = [line.message async for line in plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1))]
    return lines[0] if lines else ""


async def until_last(tail: Tail) -> int:
    """Read up to the last line. How many lines came or were told of as dropped."""
    count = 0
    while True:
        line = await tail.read()
        count += 1 + line.dropped
        if line.message == "the last":
            return count


async def test_followers_above_the_bound_are_refused_and_the_others_told_of_every_line(sidecar: Sidecar) -> None:
    async with sidecar.channel() as channel, sidecar.channel() as other, asyncio.timeout(2 * BOUND_S):
        tools, plugins = ToolServiceStub(other), PluginServiceStub(channel)
        await tools.CallTool(call("mutter", {"line": "the first"}))
        while await last_line(plugins) != "the first":  # which comes by another pipe than the result
            pass
        tails = [
            plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1, follow=True))
            for _ in range(FOLLOWERS)
        ]
        ends = await asyncio.gather(*(begun(tail) for tail in tails))
        following = [tail for tail, end in zip(tails, ends, strict=True) if end == "line"]
        assert len(following) == MAX_FOLLOWERS * 3 // 4
        assert {*ends} == {"line", "TOO_MANY_STREAMS"}
        for tail in following[READERS:]:
            tail.cancel()
        del following[READERS:]
        lines = "\n".join([*(f"line {number}" for number in range(LINES - 1)), "the last"])
        answered = asyncio.ensure_future(tools.CallTool(call("mutter", {"line": lines})))
        assert await asyncio.gather(*(until_last(tail) for tail in following)) == [LINES] * len(following)
        assert text_of((await answered).result) == "muttered"
        for tail in following:
            tail.cancel()
        again = plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1, follow=True))
        while await begun(again) != "line":
            again = plugins.TailPluginLogs(pb.TailPluginLogsRequest(name="speech", lines=1, follow=True))
    assert [line for line in sidecar.log() if line["event"] == "library_log"] == []
