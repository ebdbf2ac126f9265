"""What docs/decisions/grpc-listener.md gives: sidecars with and without it, in alternation, beside the bare echo."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from bench.harness.processes import python, running
from bench.harness.report import Report, Row
from bench.harness.rounds import Effort, Entrant, ratio, take_turns
from bench.harness.sidecar import SERVE, echo_config, sidecar, until_serving

BARE = "grpc.aio unary, bare"
SERVED, DEFAULT_LISTENER = "as served", "gRPC's default listener"
_COMMANDS = {
    SERVED: SERVE,
    # Set and empty: `fumehood serve` leaves what is set.
    DEFAULT_LISTENER: ("env", "GRPC_EXPERIMENTS=", *SERVE),
}


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure each sidecar by CallTool and by Session, turn by turn."""
    async with AsyncExitStack() as stack:
        where = f"unix:{folder}/echo.sock"
        await stack.enter_async_context(running(python("bench.peers.grpc_server", where)))
        entrants = [Entrant(BARE, python("bench.clients.grpc_echo", where, str(folder)))]
        for number, (name, command) in enumerate(_COMMANDS.items()):
            ours = await stack.enter_async_context(sidecar(echo_config(folder / str(number)), command))
            await until_serving(ours.address)
            for how in ("unary", "session"):
                client = python("bench.clients.fumehood", how, ours.address, str(folder))
                entrants.append(Entrant(f"{name}, {how}", client))
        taken = await take_turns(entrants, effort)
    report = Report()
    for name, pairs in taken.items():
        as_served = taken[f"{SERVED}, {name.rpartition(', ')[2]}"] if name != BARE else taken[f"{SERVED}, unary"]
        p50s, rates = [pair.single.p50_ms for pair in pairs], [pair.parallel.per_s for pair in pairs]
        figures = {
            "p50_ms": median(p50s),
            "as served, p50 / its": ratio([pair.single.p50_ms for pair in as_served], p50s),
            "per_s at 32": median(rates),
            "as served, rate / its": ratio([pair.parallel.per_s for pair in as_served], rates),
        }
        report.add(rows=[Row("choices", name, figures)])
    return report
