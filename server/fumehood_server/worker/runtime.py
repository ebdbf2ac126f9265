"""The files of this machine that every program needs: the system's libraries and programs, and the interpreter."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from fumehood_sandbox import Mount

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


@functools.cache
def system_runtime() -> tuple[Mount, ...]:
    """The system's programs and shared libraries, at their own places."""
    return tuple(Mount(path, path) for path in _SYSTEM if Path(path).exists())


@functools.cache
def python_runtime() -> tuple[Mount, ...]:
    """The sidecar's interpreter with its standard library, where the system's runtime does not hold it already."""
    base = Path(sys.base_prefix).resolve()
    if base.is_relative_to("/usr"):
        return ()
    return tuple(Mount(str(base / name), str(base / name)) for name in ("bin", "lib") if (base / name).is_dir())
