"""Resource limits of one process (setrlimit(2)): what stands in for a cgroup, and what no cgroup bounds."""

from __future__ import annotations

from fumehood_sandbox.cgroup import Control
from fumehood_sandbox.limits import Limits

_MESSAGE_QUEUE_BYTES = 0
_LOCKED_BYTES = 64 * 1024
_CORE_BYTES = 1


def rlimits(limits: Limits, bounded: frozenset[Control] = frozenset(), *, forks: int = 0) -> list[tuple[str, int]]:
    """What the kernel is told of these limits, but for what a cgroup bounds: names of `resource` and values."""
    # RLIMIT_AS counts what is reserved as well, and RLIMIT_NPROC other sandboxes of the same identity.
    stand_ins = [
        *([] if Control.MEMORY in bounded else [("RLIMIT_AS", limits.memory_bytes)]),
        *([] if Control.PROCESSES in bounded else [("RLIMIT_NPROC", limits.processes * (1 + forks))]),
    ]
    return [
        *stand_ins,
        ("RLIMIT_CPU", limits.cpu_s),
        ("RLIMIT_NOFILE", limits.open_files),
        ("RLIMIT_FSIZE", limits.file_size_bytes),
        # 1 byte, not 0: no core file is as small, and it is the one value at which the kernel doesn't run a handler
        # either (fs/coredump.c). At 0 it would: core_pattern's program, as root, fed by this one.
        ("RLIMIT_CORE", _CORE_BYTES),
        # What the operator's own user may have, and would let one process take a processor from all others.
        ("RLIMIT_RTPRIO", 0),
        ("RLIMIT_NICE", 0),
        # Kernel memory that no other limit here counts.
        ("RLIMIT_MSGQUEUE", _MESSAGE_QUEUE_BYTES),
        ("RLIMIT_MEMLOCK", _LOCKED_BYTES),
    ]
