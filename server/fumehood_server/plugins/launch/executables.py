"""Resolves a command on this machine to an executable and the mounts that it needs in a sandbox."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from fumehood_sandbox import Mount

_SYSTEM = tuple(Path(top) for top in ("/usr", "/bin", "/sbin", "/lib", "/lib64"))
"""What `system_runtime` mounts already."""

_PREFIX_FOLDERS = ("bin", "lib", "lib64", "libexec")
"""The folders of an install prefix that a program needs in order to run. Its etc, var and share are left out."""

_MAX_LINKS = 40
"""As many symbolic links as Linux follows in one look-up (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class FoundExecutable:
    """A command that exists on this machine."""

    path: str
    """Absolute path by which it is run, inside as outside."""
    mounts: tuple[Mount, ...]
    """What it needs beyond the system's runtime and the plugin's folder."""


def find_executable(name: str, folder: Path, *, search_path: str) -> FoundExecutable | None:
    """Look `name` up: "./x" within `folder`, an absolute path as it is, anything else on `search_path`.

    None when there is no such file, it may not be executed, or a relative path leaves the folder.
    """
    if not name or "\0" in name:
        return None
    if name.startswith(("./", "../")):
        return _own(folder, name)
    if "/" in name and not name.startswith("/"):
        return None
    located = shutil.which(name, path=search_path)
    return None if located is None else _installed(Path(located), folder)


def _own(folder: Path, name: str) -> FoundExecutable | None:
    path = (folder / name).resolve()
    runs = path.is_relative_to(folder) and path.is_file() and os.access(path, os.X_OK)
    return FoundExecutable(str(path), ()) if runs else None


def _installed(located: Path, folder: Path) -> FoundExecutable:
    real = located.resolve()
    if real.is_relative_to(folder):
        return FoundExecutable(str(real), ())
    if _is_system(real):
        # Programs such as busybox act by argv[0], so a symlink is kept if it works inside.
        return FoundExecutable(str(located if _links_stay_inside(located) else real), ())
    return FoundExecutable(str(real), _mounts_of(real))


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(top) for top in _SYSTEM)


def _links_stay_inside(path: Path) -> bool:
    """Whether each symlink on the way is mounted. /usr/bin/awk, for one, leads through /etc/alternatives."""
    for _ in range(_MAX_LINKS):
        if not _is_system(path):
            return False
        if not path.is_symlink():
            return True
        path = path.parent.resolve() / path.readlink()
    return False


def _mounts_of(real: Path) -> tuple[Mount, ...]:
    """The program's install prefix without its data, or the file alone where the prefix would show too much."""
    prefix = real.parent.parent
    if real.parent.name not in ("bin", "sbin") or _is_shared(prefix):
        return (Mount(str(real), str(real)),)
    folders = [prefix / name for name in dict.fromkeys((real.parent.name, *_PREFIX_FOLDERS))]
    return tuple(Mount(str(path), str(path)) for path in folders if path.is_dir() and not path.is_symlink())


def _is_shared(prefix: Path) -> bool:
    """Whether a folder holds more than one program's files: the root, a top-level folder, a home, the sidecar's own.

    A plugin's manifest names its command, so what is shown for it is the manifest's choice. A virtual environment's own
    scripts need more than this would show of it, and don't run either way.
    """
    home = Path.home().resolve()
    if sys.prefix != sys.base_prefix and Path(sys.prefix).resolve().is_relative_to(prefix):
        return True
    return len(prefix.parts) <= 2 or prefix == home or prefix.parent == Path("/home")  # noqa: PLR2004 - "/" and "/x"
