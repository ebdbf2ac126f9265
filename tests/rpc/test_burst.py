"""More requests at once than the sidecar takes: each is answered or refused in words, on every connection."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
from fumehood.v1.tool_service_pb2_grpc import ToolServiceStub

from tests.rpc.support import call, reason_of, text_of
from tests.sidecar import Sidecar

CALLS = 4000


async def test_every_call_of_a_burst_on_two_connections_is_answered_or_refused_by_admission(sidecar: Sidecar) -> None:
    async def ended(tools: ToolServiceStub) -> str:
        try:
            answer = await tools.CallTool(call("echo", {"text": "hi"}), wait_for_ready=True)
        except grpc.aio.AioRpcError as exc:
            return reason_of(exc) if exc.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else exc.code().name
        return text_of(answer.result)

    async with sidecar.channel() as one, sidecar.channel() as other:
        both = [ToolServiceStub(channel) for channel in (one, other)]
        ends = Counter(await asyncio.gather(*(ended(both[number % 2]) for number in range(CALLS))))
        assert set(ends) <= {"hi", "TOO_MANY_CALLS"}, ends
        assert ends["hi"] > 0
        assert ends.total() == CALLS
        for tools in both:
            assert await ended(tools) == "hi"
