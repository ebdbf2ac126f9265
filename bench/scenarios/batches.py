"""A batch of eight calls over CallTools, beside one call and eight unary calls at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

import grpc
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from bench.clients.fumehood import ARGUMENTS, check
from bench.harness.load import Echo, run
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort
from bench.harness.sidecar import echo_config, sidecar, until_serving

CALLS = 8
ISSUE = 13
"""Whose target this is, counted like `report.ISSUE`."""
ONE, EIGHT, BATCH = "one CallTool", "eight CallTool at a time", "CallTools of eight"
_NOTE = (
    f"The tools' own time is {CALLS} times the processor time that the sidecar measures of one call's process: all of"
    " them share the machine's processors with sidecar and client."
)


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure the three, turn by turn."""
    async with sidecar(echo_config(folder)) as ours:
        await until_serving(ours.address)
        async with grpc.aio.insecure_channel(ours.address) as channel:
            stub = tool_grpc.ToolServiceStub(channel)
            request = pb.CallToolRequest(tool="echo", arguments_json=ARGUMENTS)
            batch = pb.CallToolsRequest(calls=[request] * CALLS)
            own_ms: list[float] = []

            async def one() -> None:
                result = (await stub.CallTool(request)).result
                check(result)
                own_ms.append(result.usage.cpu_time.ToNanoseconds() / 1e6)

            async def eight() -> None:
                for answer in await asyncio.gather(*(stub.CallTool(request) for _ in range(CALLS))):
                    check(answer.result)

            async def together() -> None:
                async for event in stub.CallTools(batch):
                    for answer in event.answers:
                        check(answer.result)

            ways: dict[str, Echo] = {ONE: one, EIGHT: eight, BATCH: together}
            for way in ways.values():
                await run(way, in_flight=1, calls=effort.warm_calls)
            own_ms.clear()
            taken: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(effort.rounds):
                for name, way in ways.items():
                    taken[name].append((await run(way, in_flight=1, calls=effort.single_calls // 4)).p50_ms)
    own = CALLS * median(own_ms)
    shares = [(batch - own) / single for batch, single in zip(taken[BATCH], taken[ONE], strict=True)]
    return Report(
        rows=[Row("a batch of eight calls", name, {"p50_ms": median(found)}) for name, found in taken.items()]
        + [Row("a batch of eight calls", "the tools' own", {"p50_ms": own})],
        targets=[Target("batch of 8 p50, less the tools' own / one call's", median(shares), 1.5, issue=ISSUE)],
        notes=[_NOTE],
    )
