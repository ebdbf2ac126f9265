"""A warm call, alone and with 32 in flight, beside the same echo by other means; then starts and memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness.contender import Contender, contender
from bench.harness.memory import memory_row
from bench.harness.processes import python, running
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, Pair, Rounds, ratio, take_turns
from bench.harness.sidecar import ECHO, Sidecar, echo_config, sidecar, until_serving
from bench.harness.workers import worker_process_ids

BARE, UNARY, SESSION = "grpc.aio unary, bare", "fumehood CallTool", "fumehood Session"
MCP_PYTHON, MCP_TYPESCRIPT = "MCP SDK, Python", "MCP SDK, TypeScript"


@dataclass(frozen=True, slots=True)
class _Field:
    """All contenders, and the servers behind them."""

    contenders: Sequence[Contender]
    sidecar: Sidecar
    bare_pid: int


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure latency, rate, start and memory of each contender, turn by turn."""
    report = Report()
    async with _everybody(folder) as field:
        taken = await take_turns(field.contenders, effort)
        report.add(rows=[_row(name, pairs) for name, pairs in taken.items()], targets=_targets(taken))
        starts = [[await each.start_ms() for each in field.contenders] for _ in range(effort.starts)]
        for each, times in zip(field.contenders, zip(*starts, strict=True), strict=True):
            report.add(rows=[Row("start to first result", each.name, {"median_ms": median(times)})])
        await _memory(report, field)
    return report


@asynccontextmanager
async def _everybody(folder: Path) -> AsyncIterator[_Field]:
    async with AsyncExitStack() as stack:
        where = f"unix:{folder}/echo.sock"
        bare = await stack.enter_async_context(running(python("bench.peers.grpc_server", where)))
        ours = await stack.enter_async_context(sidecar(echo_config(folder)))
        await until_serving(ours.address)
        clients = {
            BARE: python("bench.clients.grpc_echo", where, str(folder)),
            UNARY: python("bench.clients.fumehood", "unary", ours.address, str(folder)),
            SESSION: python("bench.clients.fumehood", "session", ours.address, str(folder)),
            MCP_PYTHON: python("bench.clients.mcp_python"),
            MCP_TYPESCRIPT: ("node", "bench/peers/mcp_typescript/client.mjs"),
        }
        contenders = [await stack.enter_async_context(contender(name, run)) for name, run in clients.items()]
        yield _Field(contenders, ours, bare.pid)


def _row(name: str, pairs: Sequence[Pair]) -> Row:
    return Row(
        "warm call, 256 B",
        name,
        {
            "p50_ms": median(pair.single.p50_ms for pair in pairs),
            "p99_ms": median(pair.single.p99_ms for pair in pairs),
            "per_s": median(pair.single.per_s for pair in pairs),
            "p50_ms at 32": median(pair.parallel.p50_ms for pair in pairs),
            "p99_ms at 32": median(pair.parallel.p99_ms for pair in pairs),
            "per_s at 32": median(pair.parallel.per_s for pair in pairs),
        },
    )


def _targets(taken: Rounds) -> list[Target]:
    def p50(ours: str, theirs: str) -> float:
        return ratio(*([pair.single.p50_ms for pair in taken[name]] for name in (ours, theirs)))

    def rate(ours: str, theirs: str) -> float:
        return ratio(*([pair.parallel.per_s for pair in taken[name]] for name in (ours, theirs)))

    return [
        Target("CallTool p50 / bare unary echo's", p50(UNARY, BARE), 1.6),
        Target("CallTool p50 / MCP Python's", p50(UNARY, MCP_PYTHON), 0.7),
        Target("CallTool rate at 32 / MCP Python's", rate(UNARY, MCP_PYTHON), 2.5, at_least=True),
        Target("Session p50 / bare unary echo's", p50(SESSION, BARE), 1.0),
        Target("Session p50 / MCP TypeScript's", p50(SESSION, MCP_TYPESCRIPT), 1.3),
        Target("Session rate at 32 / bare unary echo's", rate(SESSION, BARE), 1.0, at_least=True),
    ]


async def _memory(report: Report, field: _Field) -> None:
    workers = await worker_process_ids(field.sidecar.address, ECHO.name)
    processes = {"fumehood sidecar": (field.sidecar.pid,), "fumehood worker": workers, BARE: (field.bare_pid,)}
    for each in field.contenders:
        if pid := await each.server_pid():
            processes[each.name] = (pid,)
    for name, pids in processes.items():
        memory_row(report, name, pids)
