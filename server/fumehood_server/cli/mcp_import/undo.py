"""Undoes what a failed import has done so far: its plugin's folder, fumehood.toml and secrets' files are put back."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def folder_restored_on_failure(folder: Path, *, unless: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Put a folder back as it was if what is done to it fails. One that is new is removed, `unless` it is to stay."""
    was_there = folder.exists()
    with tempfile.TemporaryDirectory(prefix="fumehood-import-") as name:
        old = Path(name) / "old"
        if was_there:
            shutil.copytree(folder, old, symlinks=True)
        try:
            yield
        except BaseException:
            if was_there:
                shutil.rmtree(folder)
                shutil.copytree(old, folder, symlinks=True)
            elif not unless():
                shutil.rmtree(folder, ignore_errors=True)
            raise


@contextlib.contextmanager
def file_restored_on_failure(path: Path) -> Iterator[None]:
    """Write a text file back, or remove it, if what is done to it fails."""
    old = path.read_text() if path.exists() else None
    try:
        yield
    except BaseException:
        write_back(path, old)
        raise


def write_back(path: Path, old: str | None) -> None:
    """Give a file the text that it had. None: there was none."""
    if old is None:
        path.unlink(missing_ok=True)
    elif path.read_text() != old:
        path.write_text(old)


@contextlib.contextmanager
def secret_restored_on_failure(path: Path) -> Iterator[None]:
    """Put a secret's file back, or remove it, if what follows fails. What is no plain file stays."""
    there = os.path.lexists(path)
    old = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    try:
        yield
    except BaseException:
        if not there:
            path.unlink(missing_ok=True)
        elif old is not None and path.read_bytes() != old:
            replace_secret(path, old)
        raise


def replace_secret(path: Path, content: bytes) -> None:
    """Replace a secret's file as a whole by one that its owner alone may read.

    Raises:
        OSError: it can't be written.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
