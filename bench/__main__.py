"""`python -m bench`: runs every scenario, prints tables, writes build/bench.json."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.harness.processes import ROOT
from bench.harness.report import Report, print_tables, write_json
from bench.harness.rounds import FULL, QUICK, Effort
from bench.scenarios import (
    batches,
    calls,
    catalog,
    choices,
    isolation,
    journal,
    limits,
    mcp,
    mcp_door,
    policy,
    ready,
    runs,
    start,
)

Measure = Callable[[Effort, Path], Awaitable[Report]]

SCENARIOS: dict[str, Measure] = {
    "calls": calls.measure,
    "batches": batches.measure,
    "ready": ready.measure,
    "catalog": catalog.measure,
    "start": start.measure,
    "limits": limits.measure,
    "isolation": isolation.measure,
    "choices": choices.measure,
    "journal": journal.measure,
    "policy": policy.measure,
    "mcp": mcp.measure,
    "mcp_door": mcp_door.measure,
    "runs": runs.measure,
}


async def _run(names: list[str], effort: Effort) -> Report:
    report = Report()
    for name in names:
        sys.stderr.write(f"bench: {name}\n")
        with tempfile.TemporaryDirectory(prefix="fumehood-bench-") as folder:
            found = await SCENARIOS[name](effort, Path(folder))
        report.add(found.rows, found.targets, found.notes)
    return report


def main() -> int:
    """Return 1 when a target is missed and `--strict` was given."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[[], *SCENARIOS], help="which to run; all when none is named")
    parser.add_argument("--quick", action="store_true", help="only show that everything runs: the figures mean little")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    options = parser.parse_args()
    report = asyncio.run(_run(options.scenario or list(SCENARIOS), QUICK if options.quick else FULL))
    if options.quick:
        report.add(notes=["a quick run: the figures mean little"])
    print_tables(report)
    path = ROOT / "build" / "bench.json"
    write_json(report, path)
    sys.stdout.write(f"written to {path.relative_to(ROOT)}\n")
    return int(options.strict and not all(target.holds for target in report.targets))


if __name__ == "__main__":
    sys.exit(main())
