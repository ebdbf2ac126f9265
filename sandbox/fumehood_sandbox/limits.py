"""Resource limits: how much a sandboxed process may use."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one sandbox. Every limit is enforced by the kernel; there is no "unlimited".

    Where a limit names two means, the first is a cgroup's, for the tree; the second stands in where there is none, for
    each process, and the receipt calls it weaker.
    """

    memory_bytes: int = 2048 * _MIB
    """Memory that the whole tree holds, without swap, its files in tmpfs and memfd among it.

    Without a cgroup: address space of one process (RLIMIT_AS). Runtimes that reserve much and touch little, such as
    Node, need several GiB then.
    """
    cpu_s: int = 600
    """Processor time of one process in whole seconds (RLIMIT_CPU)."""
    processes: int = 64
    """Processes and threads at a time.

    Without a cgroup: RLIMIT_NPROC, counted for the sandbox's own identity, which several sandboxes may share.
    """
    open_files: int = 1024
    """File descriptors of one process (RLIMIT_NOFILE)."""
    file_size_bytes: int = 64 * _MIB
    """Size that one file may grow to (RLIMIT_FSIZE)."""
    scratch_bytes: int = 64 * _MIB
    """Size of each of the private tmpfs folders, /tmp and /dev/shm."""
    scratch_files: int = 4096
    """Files, folders and links in each of them: the inodes of its tmpfs."""
    cpus: int = 1
    """Processors' worth of time that the whole tree may have: a cgroup's quota. Without a cgroup nothing bounds it."""
