"""Finds out whether a limit made a call fail: from the kernel's counters, the exit, and what the SDK says of it."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fumehood_server.workers.limits import process_tree
from fumehood_server.workers.limits.exhaustion import SDK_REASON, Exhausted, Limit, exhausted_error, value_of

if TYPE_CHECKING:
    from fumehood_sandbox import SandboxedProcess

    from fumehood_server.model.call import CallError
    from fumehood_server.model.plugin import WorkerSpec
    from fumehood_server.workers.limits.meter import Counters, Meter

_TOO_LARGE_REASON = "output_too_large"
_NS = 1_000_000_000
_MOST = 0.9
"""From this share of a limit on, what is seen a moment later bears out who says that it was reached."""


def of_death(
    spec: WorkerSpec, meter: Meter, before: Counters, exit_signal: signal.Signals | None, *, shared: bool
) -> Exhausted | None:
    """Which limit ended a worker's process, if one did. `before` are the counters when its oldest call began."""
    counted = _counted(spec, meter, before, shared=shared)
    if counted is not None and counted.limit is Limit.MEMORY:
        return counted
    limits = spec.policy.limits
    used_s = meter.cpu_ns() / _NS
    if exit_signal is signal.SIGXCPU or (exit_signal is signal.SIGKILL and used_s >= limits.cpu_s):
        return Exhausted(limit=Limit.CPU, value=limits.cpu_s, usage=round(used_s, 3), shared=shared)
    if exit_signal is signal.SIGXFSZ:
        size = limits.file_size_bytes
        return Exhausted(limit=Limit.FILE_SIZE, value=size, usage=size, shared=shared)
    return counted


def of_failure(
    failure: CallError, spec: WorkerSpec, process: SandboxedProcess, meter: Meter, before: Counters, *, shared: bool
) -> CallError:
    """The error of a call that the plugin says has failed: of the limit that made it fail, or as it is.

    The kernel's counters are believed, whatever the plugin says. Of what nothing counts, the SDK's word is taken, and
    whether a look at the process bears it out is told.
    """
    reason = failure.details.get("reason")
    found = _counted(spec, meter, before, shared=shared)
    if found is None and reason == SDK_REASON:
        found = _claimed(failure.details.get("limit"), spec, process, meter, shared=shared)
    if found is None and reason == _TOO_LARGE_REASON:
        size = failure.details.get("size_bytes")
        if isinstance(size, int):
            found = Exhausted(limit=Limit.OUTPUT, value=spec.output_bytes, usage=size)
    return failure if found is None else exhausted_error(spec.plugin, found, caused_by=failure)


def _counted(spec: WorkerSpec, meter: Meter, before: Counters, *, shared: bool) -> Exhausted | None:
    """What the kernel has counted since."""
    now = meter.counters()
    if now.oom_kills > before.oom_kills:
        return Exhausted(
            limit=Limit.MEMORY,
            value=spec.policy.limits.memory_bytes,
            usage=meter.peak_memory_bytes(),
            shared=shared,
        )
    if now.refused_forks > before.refused_forks:
        count = spec.policy.limits.processes
        return Exhausted(limit=Limit.PROCESSES, value=count, usage=meter.most_processes() or count, shared=shared)
    return None


def _claimed(
    name: object, spec: WorkerSpec, process: SandboxedProcess, meter: Meter, *, shared: bool
) -> Exhausted | None:
    """What the SDK says, beside what can be seen now, when the tool may have given back already what it held.

    The kernel refuses a descriptor, or a byte of a file, when exactly the limit is reached: that is the usage then.
    """
    try:
        limit = Limit(str(name))
    except ValueError:
        return None
    value = value_of(limit, spec)
    seen = _seen(limit, process.pids(), meter)
    confirmed = seen >= value * _MOST
    return Exhausted(
        limit=limit, value=value, usage=min(seen, value) if confirmed else value, shared=shared, confirmed=confirmed
    )


def _seen(limit: Limit, pids: Iterable[int], meter: Meter) -> float:
    if limit is Limit.OPEN_FILES:
        return process_tree.open_files(pids)
    if limit is Limit.SCRATCH:
        return process_tree.scratch_bytes(pids)
    if limit is Limit.SCRATCH_FILES:
        return process_tree.scratch_files(pids)
    if limit is Limit.MEMORY:
        return meter.peak_memory_bytes()
    if limit is Limit.PROCESSES:
        return meter.most_processes()
    return 0.0
