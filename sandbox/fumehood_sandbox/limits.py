"""How much a sandboxed process may use."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one sandbox. Every limit is enforced by the kernel; there is no "unlimited"."""

    memory_bytes: int = 2048 * _MIB
    """Address space of one process (RLIMIT_AS).

    Runtimes that reserve much and touch little, such as Node, need several GiB.
    """
    cpu_s: int = 600
    """Processor time of one process in whole seconds (RLIMIT_CPU)."""
    processes: int = 64
    """Processes and threads at a time (RLIMIT_NPROC, counted for the sandbox's own identity)."""
    open_files: int = 256
    """File descriptors of one process (RLIMIT_NOFILE)."""
    file_size_bytes: int = 64 * _MIB
    """Size that one file may grow to (RLIMIT_FSIZE)."""
    scratch_bytes: int = 64 * _MIB
    """Size of each of the private tmpfs folders, /tmp and /dev/shm."""
