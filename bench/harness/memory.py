"""Memory as proportional set size: shared pages are counted by share, so sums over processes are true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.harness.report import Report, Row

_KIB_PER_MIB = 1024


def memory_row(report: Report, name: str, pids: Sequence[int]) -> None:
    """Add the PSS of processes with all their descendants, or a note where this user may not read it."""
    try:
        mib = pss_mib(pids)
    except PermissionError as exc:
        report.add(notes=[f"memory of {name}: {exc}"])
        return
    report.add(rows=[Row("memory when idle", name, {"pss_mib": mib})])


def pss_mib(pids: Sequence[int]) -> float:
    """PSS of processes with all their descendants.

    Raises:
        PermissionError: this user may not read it.
    """
    return sum(_pss_kib(pid) for pid in _families(pids)) / _KIB_PER_MIB


def _families(pids: Sequence[int]) -> set[int]:
    parents = [psutil.Process(pid) for pid in pids]
    return {process.pid for parent in parents for process in (parent, *parent.children(recursive=True))}


def _pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel tells no Pss")
