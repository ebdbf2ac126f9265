"""A pytest plugin that writes each test's outcome as a JSON line to the FIFO that KERNELS_REPORT names."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

_LONGEST_REASON = 3000
"""A line that fits into PIPE_BUF is written whole, whoever else writes."""
_outcomes: dict[str, tuple[str, str]] = {}


def _write(line: dict[str, Any]) -> None:
    fd = os.open(os.environ["KERNELS_REPORT"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, json.dumps(line).encode() + b"\n")
    finally:
        os.close(fd)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return report.longreprtext[-_LONGEST_REASON:].encode("ascii", "replace").decode()[-_LONGEST_REASON // 2 :]


_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
"""With xdist each worker has this plugin as well, and hands its reports on to the controller's."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell of a test once it is torn down."""
    if _IS_WORKER:
        return
    outcome, reason = _outcomes.get(report.nodeid, ("passed", ""))
    if outcome == "passed" and report.outcome != "passed":
        outcome, reason = report.outcome, _reason(report)
    _outcomes[report.nodeid] = (outcome, reason)
    if report.when not in {"setup", "call"}:  # a worker that dies has a phase of another name
        _write({"event": "test", "test": report.nodeid, "outcome": outcome, "reason": reason})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that can't be imported is a failed test."""
    if report.failed and not _IS_WORKER:
        _write({"event": "test", "test": report.nodeid, "outcome": "failed", "reason": _reason(report)})


def pytest_sessionfinish(exitstatus: int) -> None:
    """Without this line the run was cut short."""
    if not _IS_WORKER:
        _write({"event": "end", "status": int(exitstatus)})
