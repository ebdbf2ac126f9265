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
from bench.harness.rounds import Effort, Entrant, Pair, Rounds, ratio, take_turns
from bench.harness.sidecar import ECHO, Sidecar, echo_config, sidecar, until_serving
from bench.harness.workers import worker_process_ids

BARE, UNARY, SESSION = "grpc.aio unary, bare", "fumehood CallTool", "fumehood Session"
MCP_PYTHON, MCP_TYPESCRIPT = "MCP SDK, Python", "MCP SDK, TypeScript"
MCP_LOW_LEVEL, MCP_COMPILED = "MCP SDK, Python, low-level server", "MCP SDK, TypeScript, 20 times as warm"

_NOTE = (
    "V8 goes on compiling for thousands of calls: the TypeScript SDK is measured after as many calls as everybody, and"
    " once more after 20 times as many. The low-level server for Python validates no arguments."
)


@dataclass(frozen=True, slots=True)
class _Servers:
    """What goes on over all rounds, and who loads it."""

    sidecar: Sidecar
    bare_pid: int
    entrants: Sequence[Entrant]


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure latency, rate, start and memory of each contender, turn by turn."""
    report = Report(notes=[_NOTE])
    async with _servers(folder) as servers:
        taken = await take_turns(servers.entrants, effort)
        report.add(rows=[_row(name, pairs) for name, pairs in taken.items()], targets=_targets(taken))
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(contender(entrant.name, entrant.command))
                for entrant in servers.entrants
                if entrant.warmth == 1
            ]
            starts = [[await client.start_ms() for client in clients] for _ in range(effort.starts)]
            for client, times in zip(clients, zip(*starts, strict=True), strict=True):
                report.add(rows=[Row("start to first result", client.name, {"median_ms": median(times)})])
            await _memory(report, servers, clients)
    return report


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[_Servers]:
    where = f"unix:{folder}/echo.sock"
    async with running(python("bench.peers.grpc_server", where)) as bare, sidecar(echo_config(folder)) as ours:
        await until_serving(ours.address)
        typescript = ("node", "bench/peers/mcp_typescript/client.mjs")
        yield _Servers(
            ours,
            bare.pid,
            [
                Entrant(BARE, python("bench.clients.grpc_echo", where, str(folder))),
                Entrant(UNARY, python("bench.clients.fumehood", "unary", ours.address, str(folder))),
                Entrant(SESSION, python("bench.clients.fumehood", "session", ours.address, str(folder))),
                Entrant(MCP_PYTHON, python("bench.clients.mcp_python")),
                Entrant(MCP_TYPESCRIPT, typescript),
                Entrant(MCP_LOW_LEVEL, python("bench.clients.mcp_python", "--low-level")),
                Entrant(MCP_COMPILED, typescript, warmth=20),
            ],
        )


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
        Target("CallTool p50 / bare unary echo's", p50(UNARY, BARE), 2.0),
        Target("CallTool p50 / MCP Python's", p50(UNARY, MCP_PYTHON), 0.8),
        Target("CallTool rate at 32 / MCP Python's", rate(UNARY, MCP_PYTHON), 2.0, at_least=True),
        Target("Session p50 / bare unary echo's", p50(SESSION, BARE), 1.25),
        Target("Session p50 / MCP TypeScript's", p50(SESSION, MCP_TYPESCRIPT), 1.6),
        Target("Session rate at 32 / bare unary echo's", rate(SESSION, BARE), 1.5, at_least=True),
    ]


async def _memory(report: Report, servers: _Servers, clients: Sequence[Contender]) -> None:
    workers = await worker_process_ids(servers.sidecar.address, ECHO.name)
    processes = {"fumehood sidecar": (servers.sidecar.pid,), "fumehood worker": workers, BARE: (servers.bare_pid,)}
    for client in clients:
        if pid := await client.server_pid():
            processes[client.name] = (pid,)
    for name, pids in processes.items():
        memory_row(report, name, pids)
