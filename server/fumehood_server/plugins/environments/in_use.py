"""Locks of environments in use (flock(2)), and the removal of those that nobody holds.

Whoever has verified an environment holds a shared lock on its folder until its process ends, and leaves the time there:
several sidecars can share a `state_dir`, and one that is stopped for a while finds its packages again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Collection
from pathlib import Path

UNUSED_S = 7 * 24 * 3600.0
"""For so long an environment that nothing pins is kept: it takes downloads to make it again."""

_NAME = re.compile(r"[0-9a-f]{64}")
_STAGING = re.compile(r"\.([0-9a-f]{64})\..+\.new")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class EnvironmentsInUse:
    """The environments that this process holds. Thread-safe."""

    def __init__(self) -> None:
        """None yet."""
        self._lock = threading.Lock()
        self._held: dict[Path, int] = {}

    def hold(self, path: Path) -> None:
        """Hold the environment that lies there now. Again where it was built anew meanwhile.

        Raises:
            OSError: it is gone.
        """
        descriptor = os.open(path, _FOLDER)
        with self._lock:
            held = self._held.get(path)
            if held is not None and os.path.sameopenfile(held, descriptor):
                os.close(descriptor)
                descriptor = held
            else:
                fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for no longer than a rename takes
                if held is not None:
                    os.close(held)
                self._held[path] = descriptor
        with contextlib.suppress(OSError):  # somebody else's, or on a read-only file system
            os.utime(descriptor)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise FileNotFoundError(path)


def lock_path(root: Path, key: str) -> Path:
    """The file on which whoever builds or removes an environment holds a lock."""
    return root / f".{key}.lock"


def unused_environments(root: Path) -> frozenset[Path]:
    """The environments that nobody has used for `UNUSED_S`."""
    before = time.time() - UNUSED_S
    found: set[Path] = set()
    with contextlib.suppress(FileNotFoundError), os.scandir(root) as listed:
        for each in listed:
            with contextlib.suppress(FileNotFoundError):
                if _NAME.fullmatch(each.name) and each.stat(follow_symlinks=False).st_mtime < before:
                    found.add(Path(each.path))
    return frozenset(found)


def remove_environments(paths: Collection[Path]) -> tuple[Path, ...]:
    """Remove those that nobody holds or builds. Returns what was removed. Blocks."""
    return tuple(path for path in sorted(paths) if _remove(path))


def remove_killed_builds(root: Path) -> None:
    """Remove what builds that were killed left behind. Blocks."""
    with contextlib.suppress(OSError):
        for path in root.iterdir():
            found = _STAGING.fullmatch(path.name)
            if found is not None:
                with contextlib.ExitStack() as stack, contextlib.suppress(BlockingIOError):  # somebody builds it
                    _lock(lock_path(root, found[1]), os.O_RDWR | os.O_CREAT, stack)
                    shutil.rmtree(path, ignore_errors=True)


def _lock(path: Path, flags: int, stack: contextlib.ExitStack) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(path: Path) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            _lock(lock_path(path.parent, path.name), os.O_RDWR | os.O_CREAT, stack)
            _lock(path, _FOLDER, stack)
            # Aside first, under a name of which a build removes what is left: nobody finds half of it.
            aside = path.with_name(f".{path.name}.{os.getpid()}.new")
            path.rename(aside)
        except OSError:  # in use, gone, or not ours to remove
            return False
    shutil.rmtree(aside, ignore_errors=True)
    return True
