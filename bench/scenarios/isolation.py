"""A call by default, in a fresh sandboxed process: beside the bare echo, the barest sandbox, and no sandbox at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grpc
from fumehood.v1 import tool_service_pb2 as pb
from fumehood.v1 import tool_service_pb2_grpc as tool_grpc

from bench.clients.fumehood import ARGUMENTS
from bench.harness.contender import Contender, contender
from bench.harness.load import Load
from bench.harness.memory import pss_mib
from bench.harness.processes import ROOT, python, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, ratio
from bench.harness.sidecar import sidecar, until_serving, write_config

OURS, SESSION = "fumehood CallTool", "fumehood Session"
BARE, FUTURES = "bwrap + python3 -c pass", "concurrent.futures, one task each"
BARE_ECHO = "grpc.aio unary, bare"
FRESH = ROOT / "bench" / "plugins" / "fresh"
ISSUE = 2
"""Whose targets these are, counted like `report.ISSUE`."""
ISSUE_OF_DEFAULT = 11
FORK_MS = 2.0
"""What a process of its own may add to a call, whatever the machine's gRPC takes."""
IN_FLIGHT = 8
FEW, MANY = 2, 18
"""Calls that live while memory is read: the difference is what sixteen further ones take."""
_BEGUN_S = 30.0
"""Longest until the last of them has begun."""
_NOTE = (
    f"{BARE} runs no call at all; {FUTURES} forks from a server (forkserver), since spawning takes ten times as long."
)


@dataclass(frozen=True, slots=True)
class _Turn:
    single: Load
    parallel: Load


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure latency, rate and memory, turn by turn."""
    report = Report(notes=[_NOTE])
    config = write_config(folder, f'[[plugin]]\npath = "{FRESH}"\n')
    where = f"unix:{folder}/echo.sock"
    async with sidecar(config) as ours, running(python("bench.peers.grpc_server", where)):
        await until_serving(ours.address)
        commands = {
            OURS: python("bench.clients.fumehood", "unary", ours.address, str(folder)),
            SESSION: python("bench.clients.fumehood", "session", ours.address, str(folder)),
            BARE_ECHO: python("bench.clients.grpc_echo", where, str(folder)),
            BARE: python("bench.clients.fresh_process", "bwrap"),
            FUTURES: python("bench.clients.fresh_process", "futures"),
        }
        taken: dict[str, list[_Turn]] = {name: [] for name in commands}
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(contender(name, command)) for name, command in commands.items()]
            for _ in range(effort.rounds):
                for client in clients:
                    taken[client.name].append(await _turn(client, effort))
        report.add(rows=[_row(name, turns) for name, turns in taken.items()], targets=_targets(taken))
        few, many = await _memory(ours.address, ours.pid)
    each = (many - few) / (MANY - FEW)
    report.add(
        rows=[Row("memory of a live call", OURS, {"pss_mib": each})],
        targets=[Target("each further live call, MiB of PSS", each, 4.0, issue=ISSUE)],
    )
    return report


async def _turn(client: Contender, effort: Effort) -> _Turn:
    await client.load(in_flight=1, calls=max(5, effort.warm_calls // 20))
    single = await client.load(in_flight=1, calls=max(20, effort.single_calls // 8))
    return _Turn(single, await client.load(in_flight=IN_FLIGHT, calls=max(40, effort.parallel_calls // 16)))


def _row(name: str, turns: Sequence[_Turn]) -> Row:
    return Row(
        "a fresh process for each call",
        name,
        {
            "p50_ms": median(turn.single.p50_ms for turn in turns),
            "p99_ms": median(turn.single.p99_ms for turn in turns),
            "per_s": median(turn.single.per_s for turn in turns),
            f"p50_ms at {IN_FLIGHT}": median(turn.parallel.p50_ms for turn in turns),
            f"per_s at {IN_FLIGHT}": median(turn.parallel.per_s for turn in turns),
        },
    )


def _targets(taken: dict[str, list[_Turn]]) -> list[Target]:
    def p50(theirs: str) -> float:
        return ratio(*([turn.single.p50_ms for turn in taken[name]] for name in (OURS, theirs)))

    def rate(ours: str) -> float:
        return ratio(*([turn.parallel.per_s for turn in taken[name]] for name in (ours, BARE)))

    less = [[turn.single.p50_ms for turn in taken[name]] for name in (OURS, BARE_ECHO)]
    less[0] = [each - FORK_MS for each in less[0]]
    return [
        Target(
            f"CallTool by default, p50 less {FORK_MS:g} ms / bare unary echo's",
            ratio(*less),
            4.0,
            issue=ISSUE_OF_DEFAULT,
        ),
        Target("fresh process p50 / the barest sandbox's", p50(BARE), 0.35, issue=ISSUE),
        Target("fresh process p50 / concurrent.futures'", p50(FUTURES), 1.0, issue=ISSUE),
        Target(
            "fresh process rate at 8, Session / the barest sandbox's", rate(SESSION), 2.7, at_least=True, issue=ISSUE
        ),
        Target("fresh process rate at 8, CallTool / the barest sandbox's", rate(OURS), 2.7, at_least=True, issue=ISSUE),
    ]


async def _memory(address: str, sidecar_pid: int) -> tuple[float, float]:
    """PSS of the sidecar and all below it with a few calls that stay, and with many."""
    found = []
    for calls in (FEW, MANY):
        async with _staying(address, calls):
            found.append(pss_mib((sidecar_pid,)))
    return found[0], found[1]


@asynccontextmanager
async def _staying(address: str, calls: int) -> AsyncIterator[None]:
    request = pb.StreamToolRequest(call=pb.CallToolRequest(tool="stay", arguments_json=ARGUMENTS))
    async with grpc.aio.insecure_channel(address) as channel:
        stub = tool_grpc.ToolServiceStub(channel)
        streams = [stub.StreamTool(request) for _ in range(calls)]
        try:
            async with asyncio.timeout(_BEGUN_S):
                await asyncio.gather(*(_begun(stream) for stream in streams))
            yield
        finally:
            for stream in streams:
                stream.cancel()


async def _begun(stream: grpc.aio.UnaryStreamCall[pb.StreamToolRequest, pb.StreamToolResponse]) -> None:
    async for event in stream:
        if event.HasField("update"):
            return
    raise RuntimeError("a call that should stay has ended")
