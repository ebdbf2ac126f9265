"""Builds an environment: filled in a private folder, made read-only, recorded, renamed into place; once for all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fumehood_server.plugins.environments.contents import contents_digest
from fumehood_server.plugins.environments.environments import Environment, Environments
from fumehood_server.plugins.environments.errors import InstallerError
from fumehood_server.plugins.environments.in_use import lock_path
from fumehood_server.plugins.environments.record import CONTENTS_NAME, Record, write_record

Say = Callable[[str], None]
"""Told what is going on, in one line."""
Fill = Callable[[Path, Path], Record]
"""Makes the first folder and what lies in it; the second is for temporary files. `Record.contents` is left empty."""


def build_environment(environments: Environments, environment: Environment, fill: Fill, say: Say) -> bool:
    """Have `fill` make what `environment` names. False: it is there and intact, so that nothing was done.

    Processes that build the same environment do it once: the others wait on an flock, and find it. Whoever uses an
    environment that is built anew keeps the old files. Blocks.

    Raises:
        InstallerError: what was made can't be used; or whatever `fill` raises.
        OSError: the folder can't be written.
    """
    root, key = environments.root, environment.path.name
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(lock_path(root, key), say):
        if environments.verify(environment) is None:
            return False
        for left in root.glob(f".{key}.*.new"):  # of a build that was killed
            shutil.rmtree(left, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{key}.", suffix=".new", dir=root))
        try:
            made = staging / "environment"
            made.mkdir()
            _seal(made, fill(made / CONTENTS_NAME, staging))
            if environment.path.exists():
                environment.path.rename(staging / "old")
            made.rename(environment.path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return True


@contextlib.contextmanager
def _lock(path: Path, say: Say) -> Iterator[None]:
    """Hold an flock on a file that stays: one that is removed could be locked twice, by its old and its new inode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that builds the same environment")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _seal(made: Path, record: Record) -> None:
    """Make it readable by every plugin's user and writable by nobody, whatever the umask, and record it.

    Plugins of a root sidecar run as users of their own.
    """
    for parent, _, files in os.walk(made):
        Path(parent).chmod(0o755)
        for name in files:
            file = Path(parent, name)
            if file.is_file() and not file.is_symlink():
                file.chmod(0o555 if file.stat().st_mode & 0o100 else 0o444)
    try:
        digest = contents_digest(made / CONTENTS_NAME)
    except OSError as exc:
        raise InstallerError(f"what was made can't be used: {exc}") from exc
    write_record(made, replace(record, contents=digest))
