"""What rules, middleware and a quota cost a call, each beside a sidecar with none of them."""

from __future__ import annotations

import contextlib
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
from bench.harness.sidecar import SERVE, echo_config, sidecar, until_serving

if TYPE_CHECKING:
    from fumehood.v1.tool_service_pb2_grpc import ToolServiceAsyncStub as Stub  # what ToolServiceStub makes here

RULES = 1000
LOOKING = 10
"""Of them, rules that look at each call's arguments. The others are for other tools."""
ISSUE = 13
"""Whose target this is, counted like `report.ISSUE`."""
_NOTE = (
    f"{RULES} rules, {LOOKING} of which look at the echo's argument by a pattern; the others are for other tools."
    " The two middlewares go on with the call and give its result as they got it."
)
_COUNTED_NOTE = (
    "A call that a quota counts waits until the journal has its start, which a kill must not take back: that is one"
    " transaction and two changes of thread, where other calls of these levels are recorded later and together."
)
NONE, RULED, AROUND = "no rules", f"{RULES:,} rules", f"{RULES:,} rules and two middlewares"
COUNTED = "all that and a quota"


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure `CallTool` of the three, turn by turn."""
    configs = {name: echo_config(folder / str(place)) for place, name in enumerate((NONE, RULED, AROUND, COUNTED))}
    added = ((RULED, _rules()), (AROUND, _rules() + _MIDDLEWARE), (COUNTED, _rules() + _MIDDLEWARE + _QUOTA))
    for name, more in added:
        configs[name].write_text(configs[name].read_text(encoding="utf-8") + more, encoding="utf-8")
    command = ("env", f"PYTHONPATH={_package(folder / 'package')}", *SERVE)
    request = pb.CallToolRequest(tool="echo", arguments_json=ARGUMENTS)
    taken: dict[str, list[float]] = {name: [] for name in configs}
    async with contextlib.AsyncExitStack() as stack:
        ways: dict[str, Echo] = {}
        for name, config in configs.items():
            ours = await stack.enter_async_context(sidecar(config, command))
            await until_serving(ours.address)
            channel = await stack.enter_async_context(_channel(ours.address))
            ways[name] = _caller(tool_grpc.ToolServiceStub(channel), request)
        for way in ways.values():
            await run(way, in_flight=1, calls=effort.warm_calls)
        for _ in range(effort.rounds):
            for name, way in ways.items():
                taken[name].append((await run(way, in_flight=1, calls=effort.single_calls)).p50_ms)

    def share(name: str) -> float:
        return median(with_ms / without_ms for with_ms, without_ms in zip(taken[name], taken[NONE], strict=True))

    return Report(
        rows=[Row("CallTool and an operator's rules", name, {"p50_ms": median(p50)}) for name, p50 in taken.items()],
        targets=[
            Target("CallTool p50 with rules / without", share(RULED), 1.2, issue=ISSUE),
            Target("CallTool p50 with rules and two middlewares / without", share(AROUND), 1.2, issue=ISSUE),
        ],
        notes=[_NOTE, _COUNTED_NOTE],
    )


_MIDDLEWARE = """
[[middleware]]
name = "bench_one"
[[middleware]]
name = "bench_two"
"""
_QUOTA = """
[[policy.quota]]
name = "echoes"
tools = ["echo"]
calls = 1000000000
window = "1d"
"""
_CODE = """
async def go_on(call, next):
    return await next()
"""


def _package(folder: Path) -> Path:
    """What pip would leave of a package with two middlewares."""
    about = folder / "bench_middleware-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "bench_middleware.py").write_text(_CODE, encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-middleware\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"{name} = bench_middleware:go_on\n" for name in ("bench_one", "bench_two"))
    (about / "entry_points.txt").write_text(f"[fumehood.middleware]\n{points}", encoding="utf-8")
    return folder


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
