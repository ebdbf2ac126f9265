"""Files of the operator's that commands change: by one process at a time, and replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fumehood_server.errors import ConfigError

_WAIT_S = 5.0
"""For another process, which takes milliseconds."""
_POLL_S = 0.01
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Path]:
    """The file that `path` leads to, for this process alone to read and replace. Blocks for up to 5 s.

    An flock on its folder: one on the file would be lost when that is replaced. It can't be held twice, so nothing
    within may ask for it again.

    Raises:
        ConfigError: another process holds it for longer.
        OSError: the folder can't be opened.
    """
    real = path.resolve()
    descriptor = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(path, "is being written by another process", hint="try again") from None
                time.sleep(_POLL_S)
        yield real
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError, hint: str = "make its folder writable") -> ConfigError:
    """Why a file can't be written, with what to do."""
    hint = "make room on its file system" if error.errno in _FULL else hint
    return ConfigError(path, f"can't be written: {error.strerror}", hint=hint)
