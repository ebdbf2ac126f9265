"""What recording costs: sidecars with and without the journal, turn by turn, on a warm tool of level `none`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from bench.harness.processes import python
from bench.harness.report import Report, Row, Target
from bench.harness.rounds import Effort, Entrant, ratio, take_turns
from bench.harness.sidecar import ECHO, sidecar, until_serving, write_config
from bench.scenarios.journal_reading import measure_reading
from bench.scenarios.journal_writing import measure_writing

RECORDED, UNRECORDED = "recorded", "journal off"


async def measure(effort: Effort, folder: Path) -> Report:
    """Measure each sidecar by CallTool and by Session."""
    async with AsyncExitStack() as stack:
        entrants: list[Entrant] = []
        for name, store in ((UNRECORDED, "off"), (RECORDED, "sqlite")):
            where = folder / store
            where.mkdir()
            config = write_config(where, f'[journal]\nstore = "{store}"\n[[plugin]]\npath = "{ECHO}"\n')
            ours = await stack.enter_async_context(sidecar(config))
            await until_serving(ours.address)
            for how in ("unary", "session"):
                client = python("bench.clients.fumehood", how, ours.address, str(folder))
                entrants.append(Entrant(f"{name}, {how}", client))
        taken = await take_turns(entrants, effort)
    report = Report()
    for name, pairs in taken.items():
        base = taken[f"{UNRECORDED}, {name.rpartition(', ')[2]}"]
        p50s, rates = [pair.single.p50_ms for pair in pairs], [pair.parallel.per_s for pair in pairs]
        p50, rate = ratio(p50s, [pair.single.p50_ms for pair in base]), ratio(rates, [p.parallel.per_s for p in base])
        figures = {"p50_ms": median(p50s), "p50 / off": p50, "per_s at 32": median(rates), "rate / off": rate}
        report.add(rows=[Row("journal", name, figures)])
        if name.startswith(RECORDED):
            report.add(
                targets=[
                    Target(f"{name}: p50 / off", p50, 1.15),
                    Target(f"{name}: rate / off", rate, 0.85, at_least=True),
                ]
            )
    writing = await measure_writing(effort, folder)
    report.add(writing.rows, writing.targets)
    reading = await asyncio.to_thread(measure_reading, effort, folder)
    report.add(reading.rows, reading.targets)
    return report
