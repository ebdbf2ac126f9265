"""What an operator's rules cost a call: a sidecar with a thousand of them, beside one with none."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import grpc
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from bench.clients.fumehood import ARGUMENTS, check
from bench.harness.load import Echo, run
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort
from bench.harness.sidecar import echo_config, sidecar, until_serving

if TYPE_CHECKING:
    from fumehood.v1.tool_service_pb2_grpc import ToolServiceAsyncStub as Stub  # what ToolServiceStub makes here

RULES = 1000
LOOKING = 10
"""Of them, rules that look at each call's arguments. The others are for other tools."""
ISSUE = 13
"""Whose target this is, counted like `report.ISSUE`."""
_NOTE = f"{RULES} rules, {LOOKING} of which look at the echo's argument by a pattern; the others are for other tools."


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure `CallTool` of both, turn by turn."""
    plain, ruled = echo_config(folder / "plain"), echo_config(folder / "ruled")
    ruled.write_text(ruled.read_text(encoding="utf-8") + _rules(), encoding="utf-8")
    request = pb.CallToolRequest(tool="echo", arguments_json=ARGUMENTS)
    taken: dict[str, list[float]] = {"no rules": [], f"{RULES:,} rules": []}
    async with sidecar(plain) as without, sidecar(ruled) as governed:
        ways: dict[str, Echo] = {}
        async with _channel(without.address) as first, _channel(governed.address) as second:
            for name, channel in zip(taken, (first, second), strict=True):
                ways[name] = _caller(tool_grpc.ToolServiceStub(channel), request)
            for each in (without, governed):
                await until_serving(each.address)
            for way in ways.values():
                await run(way, in_flight=1, calls=effort.warm_calls)
            for _ in range(effort.rounds):
                for name, way in ways.items():
                    taken[name].append((await run(way, in_flight=1, calls=effort.single_calls)).p50_ms)
    shares = [ruled_ms / plain_ms for plain_ms, ruled_ms in zip(*taken.values(), strict=True)]
    return Report(
        rows=[Row("CallTool and an operator's rules", name, {"p50_ms": median(p50)}) for name, p50 in taken.items()],
        targets=[Target("CallTool p50 with rules / without", median(shares), 1.2, issue=ISSUE)],
        notes=[_NOTE],
    )


def _rules() -> str:
    """All allow: what is measured is that they are looked at."""
    looking = [
        f'[[policy.rule]]\nname = "looks-{number}"\ntools = ["echo"]\npermission = "allow"\n'
        f'[[policy.rule.when]]\npointer = "/text"\npattern = "^x{{{number + 1}}}"\n'
        for number in range(LOOKING)
    ]
    others = [
        f'[[policy.rule]]\nname = "other-{number}"\ntools = ["other_{number}"]\npermission = "deny"\n'
        for number in range(RULES - LOOKING)
    ]
    return "\n" + "\n".join((*looking, *others))


def _caller(stub: Stub, request: pb.CallToolRequest) -> Echo:
    async def call() -> None:
        check((await stub.CallTool(request)).result)

    return call


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address)
