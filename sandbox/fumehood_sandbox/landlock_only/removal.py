"""Removes a folder's content without recursion. Runs in the group supervisor too, so it imports nothing more."""

import os
import time

from fumehood_sandbox.kernel.constants import (
    S_IFDIR,
    S_IFMT,
)

_OWNER_ALL = 0o700


def empty(path: str, seconds: float) -> bool:
    """Remove everything in a folder, and say whether that was done in time. Follows no link.

    Nothing may be running that could change the folder. Folders within folders are first moved to the top, so that
    neither their depth nor the length of their paths matters.

    Raises:
        OSError: something can't be removed.
    """
    deadline = time.monotonic() + seconds
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        moved = 0
        while names := os.listdir(top):  # noqa: PTH208 - a descriptor
            for name in names:
                if time.monotonic() > deadline:
                    return False
                if not _is_folder(top, name):
                    os.unlink(name, dir_fd=top)
                    continue
                folder = _open_folder(top, name)
                try:
                    for inner in os.listdir(folder):  # noqa: PTH208 - likewise
                        if not _is_folder(folder, inner):
                            os.unlink(inner, dir_fd=folder)
                            continue
                        moved = _move_up(top, folder, inner, moved)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    return True


def _is_folder(parent: int, name: str) -> bool:
    return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & S_IFMT == S_IFDIR


def _open_folder(parent: int, name: str) -> int:
    """Open a folder, whatever rights its owner took away from himself."""
    os.chmod(name, _OWNER_ALL, dir_fd=parent)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _move_up(top: int, folder: int, name: str, moved: int) -> int:
    # Moving a folder changes its "..", so it must be writable itself.
    os.chmod(name, _OWNER_ALL, dir_fd=folder)
    while True:
        moved += 1
        target = f".{moved}"
        try:
            os.stat(target, dir_fd=top, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=top)
            return moved
