"""Hold a sidecar under every kind of attack beside a caller that behaves well. Exit status 1: a bound was missed."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.soak.attacks import KINDS
from tests.soak.run import BACK_SHARE, LATENCY_MS, MEMORY_MIB, Report, soak


def main() -> int:
    """Run it, and tell what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it takes, about (default: 60)")
    parser.add_argument("--only", action="append", default=[], choices=[*KINDS], help="this kind of attack alone")
    parser.add_argument("--json", type=Path, help="write what was found to this file as well")
    parser.add_argument(
        "--nice", type=int, default=0, help="niceness of the sidecar and its caller: -10, as root, on a busy machine"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-log-") as folder:
        report = soak(options.seconds, only=options.only, nice=options.nice, log=Path(folder) / "log", say=_say)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    _tell(report)
    return 1 if report.faults else 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - it is a command


def _tell(report: Report) -> None:
    _say(f"\n{'beside':18} {'calls':>6} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'MiB':>6}  ")
    quiet = report.quiet
    rows = [("nobody", quiet, report.quiet_mib, "")]
    rows += [(row.kind, row.latency, row.memory_mib, "; ".join(row.faults)) for row in report.rows]
    for name, latency, mib, faults in rows:
        numbers = f"{latency.p50_ms:8.1f} {latency.p99_ms:8.1f} {latency.longest_ms:8.1f} {mib:6.0f}"
        _say(f"{name:18} {latency.calls:6} {numbers}  {faults}")
    _say(f"\nafterwards {report.after_mib:.0f} MiB")
    for skipped in report.skipped:
        _say(f"left out: {skipped}")
    bounds = (
        f"p99 at most {LATENCY_MS:.0f} ms over the quiet one, {MEMORY_MIB:.0f} MiB, back within {BACK_SHARE - 1:.0%}"
    )
    _say(f"{len(report.faults)} faults by the bounds: {bounds}, and an outcome that the protocol names for each call")


if __name__ == "__main__":
    sys.exit(main())
