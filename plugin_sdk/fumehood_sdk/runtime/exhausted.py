"""Which limit of the sandbox made an exception, if one did. The sidecar looks whether the kernel says the same."""

from __future__ import annotations

import errno

_BY_ERRNO = {
    errno.EMFILE: "open_files",
    errno.EFBIG: "file_size_bytes",
    errno.ENOMEM: "memory_bytes",
}
_SCRATCH = ("/tmp/", "/dev/shm/")  # noqa: S108 - the sandbox's own
_FORKING = ("subprocess.py", "popen_fork.py", "_posixsubprocess.py")
_NO_THREAD = "can't start new thread"
"""CPython's own words (Modules/_threadmodule.c); the exception says it in no other way."""


def reached_limit(error: BaseException) -> str:
    """The limit's name as in `[tool.limits]`; empty when it is none."""
    if isinstance(error, MemoryError):
        return "memory_bytes"
    if isinstance(error, RuntimeError) and error.args == (_NO_THREAD,):
        return "processes"
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.ENOSPC:
        # Anything else than scratch is a granted path, and full is then the machine's disk.
        path = error.filename
        return "scratch_bytes" if path is None or str(path).startswith(_SCRATCH) else ""
    if error.errno == errno.EAGAIN:
        return "processes" if _forked(error) else ""  # else it is a descriptor that doesn't block
    return _BY_ERRNO.get(error.errno or 0, "")


def _forked(error: BaseException) -> bool:
    """Whether it was raised where the standard library starts processes."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is not None and innermost.tb_frame.f_code.co_filename.endswith(_FORKING)
