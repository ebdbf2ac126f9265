"""Maps exceptions to the resource limit that caused them. The sidecar compares it with what the kernel counted."""

from __future__ import annotations

import _thread
import errno
import os

_BY_ERRNO = {
    errno.EMFILE: "open_files",
    errno.EFBIG: "file_size_bytes",
    errno.ENOMEM: "memory_bytes",
}
_SCRATCH = ("/tmp/", "/dev/shm/")  # noqa: S108 - the sandbox's own
_FORKING = ("subprocess.py", "popen_fork.py", "_posixsubprocess.py")
_THREAD_BYTES = 8 * 1024 * 1024
"""glibc's stack of a thread."""
_NO_THREAD = "can't start new thread"
"""CPython's own words (Modules/_threadmodule.c); the exception says it in no other way."""


def reached_limit(error: BaseException) -> str:
    """The limit's name as in `[tool.limits]`; empty when it is none."""
    if isinstance(error, MemoryError):
        return "memory_bytes"
    if isinstance(error, RuntimeError) and error.args == (_NO_THREAD,):
        return "memory_bytes" if _address_space_is_full() else "processes"
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.ENOSPC:
        # Anything else than scratch is a granted path, and full is then the machine's disk.
        path = error.filename
        return _full_scratch() if path is None or str(path).startswith(_SCRATCH) else ""
    if error.errno == errno.EAGAIN:
        return "processes" if _forked(error) else ""  # else it is a descriptor that doesn't block
    return _BY_ERRNO.get(error.errno or 0, "")


def _full_scratch() -> str:
    """What scratch lacks: bytes, or inodes, whose lack fails with the same number."""
    for folder in _SCRATCH:
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        if status.f_files and not status.f_ffree:
            return "scratch_files"
    return "scratch_bytes"


def _address_space_is_full() -> bool:
    """Whether there was no room for a thread's stack, where address space is what bounds memory.

    By its peak: the threads that there were may have ended on the exception's way.
    """
    import resource  # noqa: PLC0415 - a plugin that works never needs it

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return False
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - pathlib takes 4 ms to import
            peak_kib = next(int(line.split()[1]) for line in stream if line.startswith("VmPeak:"))
    except (OSError, StopIteration):
        return False
    return peak_kib * 1024 + _THREAD_BYTES > limit


def _forked(error: BaseException) -> bool:
    """Whether it was raised where the standard library starts processes, or no thread can be started even now."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is not None and innermost.tb_frame.f_code.co_filename.endswith(_FORKING):
        return True
    try:
        _thread.start_new_thread(int, ())
    except RuntimeError:
        return True
    return False
