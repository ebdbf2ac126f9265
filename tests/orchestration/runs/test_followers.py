"""Streams that join one run have so many places, which its own stream and those of other runs don't take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import grpc
from fumehood.v1 import orchestration_service_pb2 as pb
from fumehood.v1.orchestration_service_pb2_grpc import OrchestrationServiceStub
from fumehood_server.rpc.orchestration_service import MAX_JOINED_STREAMS, MAX_JOINED_STREAMS_OF_CONNECTION

from tests.orchestration.scripted import ScriptedModel
from tests.rpc.support import BOUND_S, reason_of

from .bench import TIMEOUT_S, asked, model_sidecar

LISTEN = 'listen = ["unix:s", "127.0.0.1:0"]'
FOLLOWERS = 70
Stream = grpc.aio.UnaryStreamCall[pb.StreamRunRequest, pb.StreamRunResponse]


def followed(channel: grpc.aio.Channel, name: str, count: int) -> list[Stream]:
    stub = OrchestrationServiceStub(channel)
    request = pb.StreamRunRequest(request=asked(request_id=name, continue_if_disconnected=True))
    return [stub.StreamRun(request, timeout=TIMEOUT_S) for _ in range(count)]


async def begun(streams: Sequence[Stream]) -> Counter[str]:
    """How they begin: "joined", "started", or why they were refused."""

    async def one(stream: Stream) -> str:
        try:
            first = await stream.read()
        except grpc.aio.AioRpcError as exc:
            return reason_of(exc)
        return "joined" if first.started.joined else "started"

    return Counter(await asyncio.gather(*map(one, streams)))


async def test_as_many_streams_join_a_run_as_may_and_others_begin_runs(
    scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    scripted_model.says("Slow.", latency=60_000, times=None)
    more = "[orchestration]\nmax_runs = 100\n"
    with model_sidecar(scripted_model, tmp_path, server=LISTEN, more=more) as sidecar:
        by_unix, by_tcp = (grpc.aio.insecure_channel(each) for each in sidecar.targets)
        async with by_unix, by_tcp, asyncio.timeout(2 * BOUND_S):
            assert await begun(followed(by_unix, "a", 1)) == {"started": 1}
            joining = followed(by_unix, "a", FOLLOWERS)
            most = MAX_JOINED_STREAMS * 3 // 4
            assert await begun(joining) == {"joined": most, "TOO_MANY_STREAMS": FOLLOWERS - most}
            most = MAX_JOINED_STREAMS_OF_CONNECTION
            assert await begun(followed(by_tcp, "a", FOLLOWERS)) == {"joined": most, "TOO_MANY_STREAMS": 70 - most}
            runs = [stream for number in range(most + 4) for stream in followed(by_tcp, f"b{number}", 1)]
            assert await begun(runs) == {"started": most + 4}
            assert await begun(followed(by_tcp, "b0", most)) == {"joined": most}
            for each in joining:
                each.cancel()
            while (await begun(followed(by_unix, "a", 1)))["joined"] == 0:  # those that left are told of it in turn
                pass
