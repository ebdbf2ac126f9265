"""Hold a sidecar under every kind of attack beside a caller that behaves well. Exit status 1: a bound was missed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.soak.attacks import KINDS
from tests.soak.run import ALL, BACK_SHARE, LATENCY_MS, MEMORY_MIB, Report, soak


def main() -> int:
    """Run it, and tell what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it takes, about (default: 60)")
    parser.add_argument("--only", action="append", default=[], choices=[*KINDS, ALL], help="this kind of attack alone")
    parser.add_argument("--json", type=Path, help="write what was found to this file as well")
    parser.add_argument(
        "--nice", type=int, default=0, help="niceness of the sidecar and its caller: -10, as root, on a busy machine"
    )
    parser.add_argument(
        "--busy", action="store_true", help="tell what is late, and do not fail by it: for a machine with other work"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what it has started ends with it
    with tempfile.TemporaryDirectory(prefix="soak-log-") as folder:
        report = soak(options.seconds, only=options.only, nice=options.nice, folder=Path(folder), say=_say)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    _tell(report)
    return 1 if report.faults or (report.missed and not options.busy) else 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - it is a command


def _tell(report: Report) -> None:
    heads = ("calls", "p50 ms", "p99 ms", "max ms", "p99 run", "echo p99", "MiB")
    _say(f"\n{'beside':18}" + "".join(f" {head:>8}" for head in heads))
    rows = [("nobody", report.quiet, report.quiet_echo, report.quiet_mib, "")]
    rows += [(row.kind, row.latency, row.echo, row.memory_mib, "; ".join(row.faults)) for row in report.rows]
    for name, latency, echo, mib, faults in rows:
        numbers = (latency.p50_ms, latency.p99_ms, latency.longest_ms, latency.p99_with_processor_ms, echo.p99_ms, mib)
        _say(f"{name:18} {latency.calls:8}" + "".join(f" {number:8.1f}" for number in numbers) + f"  {faults}")
    _say("p99 run: without the time in which sidecar or worker was ready and had no processor; echo: a bare server")
    _say(f"\nafterwards {report.after_mib:.0f} MiB")
    _say(", ".join(f"{name} {value}" for name, value in report.loop.items()))
    for skipped in report.skipped:
        _say(f"left out: {skipped}")
    bounds = (
        f"p99 run at most {LATENCY_MS:.0f} ms over the quiet one and the echo's, {MEMORY_MIB:.0f} MiB, "
        f"back within {BACK_SHARE - 1:.0%}"
    )
    for fault in report.faults:
        _say(f"FAULT: {fault}")
    for miss in report.missed:
        _say(f"missed: {miss}")
    _say(
        f"{len(report.faults)} faults and {len(report.missed)} bounds missed: {bounds}, and an outcome that the "
        "protocol names for each call"
    )


if __name__ == "__main__":
    sys.exit(main())
