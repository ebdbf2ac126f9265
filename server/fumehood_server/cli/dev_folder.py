"""Private folder of a `fumehood plugin dev` in /tmp, held by an flock(2), and removal of those that killed ones left.

fumehood-dev-XXXXXXXX/           made by mkdtemp(3), for its owner alone
fumehood-dev-XXXXXXXX/dev.lock   held for as long as its `plugin dev` lives

/tmp is everybody's to write: whatever lies there under such a name is anybody's until its descriptor says otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Not the plugin's folder: a socket's path may have 107 bytes (unix(7)), and the digest covers that folder.
ROOT = Path("/tmp")  # noqa: S108 - of folders that are their owner's alone
LOCK_NAME = "dev.lock"

_PREFIX = "fumehood-dev-"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")
_NEW_LOCK = "dev.lock.new"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: nothing waits for the other end of a FIFO of that name.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def private_folder(root: Path = ROOT) -> Iterator[Path]:
    """A folder for one `plugin dev`, removed when the block ends. Those of killed ones are removed first. Blocks.

    Raises:
        OSError: it can't be made.
    """
    remove_killed(root)
    lock = -1
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=root) as name:
            lock = _hold(Path(name))
            yield Path(name)
    finally:
        if lock >= 0:
            os.close(lock)


def remove_killed(root: Path) -> None:
    """Remove this user's folders whose `plugin dev` has ended. What can't be removed is left. Blocks."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        within = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, within)
        for name in os.listdir(within):  # noqa: PTH208 - of a descriptor
            if _NAME.fullmatch(name):
                with contextlib.suppress(OSError):  # another user's, in use, or no folder
                    _remove_unheld(name, within)


def _hold(folder: Path) -> int:
    """A descriptor with the lock. The kernel lets go of it when the process ends: children don't get it (O_CLOEXEC)."""
    new = folder / _NEW_LOCK
    descriptor = os.open(new, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Named once it is held: who finds the name finds it held by a process that lives.
        new.rename(folder / LOCK_NAME)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_unheld(name: str, within: int) -> None:
    """Remove the folder of that name in the one that is open, if this user made it and nobody holds its lock.

    Raises:
        OSError: somebody holds it, it isn't what this module makes, or part of it can't be removed.
    """
    with contextlib.ExitStack() as stack:
        folder = os.open(name, _FOLDER, dir_fd=within)
        stack.callback(os.close, folder)
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            return
        lock = os.open(LOCK_NAME, _FILE, dir_fd=folder)
        stack.callback(os.close, lock)
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # By descriptor from here on: nobody can put another folder in the place of the one that was looked at.
        for each in os.listdir(folder):  # noqa: PTH208 - of a descriptor
            if each == LOCK_NAME:
                continue
            if stat.S_ISDIR(os.stat(each, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(each, dir_fd=folder)
            else:
                os.unlink(each, dir_fd=folder)
        # Last, so that the next one goes on where this one is killed.
        os.unlink(LOCK_NAME, dir_fd=folder)
        os.rmdir(name, dir_fd=within)  # an empty folder alone, and no link
