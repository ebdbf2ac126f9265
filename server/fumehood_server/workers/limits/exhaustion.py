"""Limits that were reached: which, by how much, and the error that a call ends with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fumehood_sandbox import Limits

from fumehood_server.model.call import CallError
from fumehood_server.model.plugin import WorkerSpec
from fumehood_server.model.taxonomy import Code

SDK_REASON = "resource_exhausted"
"""What the SDK gives as the reason of an exception that a limit raises, with the limit's name in `details.limit`."""


class Limit(StrEnum):
    """Limits of a worker that an error can name as `details.limit`. Each is named as in `[limits.default]`."""

    MEMORY = "memory_bytes"
    CPU = "cpu_s"
    PROCESSES = "processes"
    OPEN_FILES = "open_files"
    FILE_SIZE = "file_size_bytes"
    SCRATCH = "scratch_bytes"
    SCRATCH_FILES = "scratch_files"
    OUTPUT = "output_bytes"
    LOG_RATE = "log_bytes_per_second"


_UNITS = {
    Limit.MEMORY: "bytes",
    Limit.CPU: "s",
    Limit.PROCESSES: "processes",
    Limit.OPEN_FILES: "files",
    Limit.FILE_SIZE: "bytes",
    Limit.SCRATCH: "bytes",
    Limit.SCRATCH_FILES: "files",
    Limit.OUTPUT: "bytes",
    Limit.LOG_RATE: "bytes/s",
}

_WHAT = {
    Limit.MEMORY: "held {usage} of memory",
    Limit.CPU: "used {usage} of processor time",
    Limit.PROCESSES: "wanted more than {usage} at a time (threads count)",
    Limit.OPEN_FILES: "wanted more than {usage} open at a time",
    Limit.FILE_SIZE: "wrote a file of {usage}",
    Limit.SCRATCH: "filled its scratch folder with {usage}",
    Limit.SCRATCH_FILES: "filled its scratch folder with {usage}",
    Limit.OUTPUT: "returned {usage}",
    Limit.LOG_RATE: "logged {usage} within a second",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """A limit that was reached."""

    limit: Limit
    value: float
    """What it was set to."""
    usage: float
    """What was seen, in the same unit."""
    shared: bool = False
    """Whether other calls ran in the same processes, so that it is not known whose usage it was."""
    confirmed: bool = True
    """Whether the kernel's own numbers show it. False where only the plugin says so."""


def value_of(limit: Limit, spec: WorkerSpec) -> float:
    """What a limit is set to for a worker."""
    limits: Limits = spec.policy.limits
    values: dict[Limit, float] = {
        Limit.MEMORY: limits.memory_bytes,
        Limit.CPU: spec.cpu_s,
        Limit.PROCESSES: limits.processes,
        Limit.OPEN_FILES: limits.open_files,
        Limit.FILE_SIZE: limits.file_size_bytes,
        Limit.SCRATCH: limits.scratch_bytes,
        Limit.SCRATCH_FILES: limits.scratch_files,
        Limit.OUTPUT: spec.output_bytes,
        Limit.LOG_RATE: spec.log_bytes_per_second,
    }
    return values[limit]


def exhausted_error(plugin: str, exhausted: Exhausted, *, caused_by: CallError | None = None) -> CallError:
    """What a call ends with that reached a limit. `caused_by` is what the tool itself said of it."""
    limit = exhausted.limit
    seen = _said(exhausted.usage, _UNITS[limit])
    details: dict[str, Any] = {
        "plugin": plugin,
        "limit": limit.value,
        "value": exhausted.value,
        "usage": exhausted.usage,
        "unit": _UNITS[limit],
    }
    shared = ""
    if exhausted.shared:
        details["shared"] = True
        shared = " Other calls ran in the same process."
    if not exhausted.confirmed:
        details["confirmed"] = False
    said = f" The tool said: {caused_by.message}" if caused_by is not None else ""
    return CallError(
        code=Code.TOOL_RESOURCE_EXHAUSTED,
        message=(
            f'plugin "{plugin}" {_WHAT[limit].format(usage=seen)}; its limit {limit} is '
            f"{_said(exhausted.value, _UNITS[limit])}.{shared} Ask it for less; its author can declare more in the "
            f"tool's limits, and its operator allow more with {limit} in [limits.default] and [limits.cap] of "
            "fumehood.toml."
            f"{said}"
        ),
        details=details,
        caused_by=caused_by,
    )


def _said(number: float, unit: str) -> str:
    """A number for people."""
    if unit.startswith("bytes"):
        for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
            if number >= 1024**power:
                return f"{number / 1024**power:.4g} {name}"
        return f"{number:.0f} bytes"
    return f"{number:.3g} s" if unit == "s" else f"{number:.0f} {unit}"
