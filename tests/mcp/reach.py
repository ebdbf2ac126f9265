"""Folders that every user of this machine reaches, so that a plugin who doesn't is held by its sandbox alone.

A sidecar that root started gives plugins users of their own, to whom pytest's folders are closed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def open_folders(*names: str) -> Iterator[tuple[Path, ...]]:
    """Folders of these names that anybody may enter, list and write to."""
    with tempfile.TemporaryDirectory(prefix="fh-") as top:
        Path(top).chmod(0o755)
        folders = tuple(Path(top) / each for each in names)
        for each in folders:
            each.mkdir()
            each.chmod(0o777)
        yield folders


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Do what a plugin without a sandbox could: as a user who owns nothing, where this one is root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
