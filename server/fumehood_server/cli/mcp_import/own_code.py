"""Copy of a script's project into its plugin's folder, so that what runs is pinned: bounded, without hidden files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.plugins.store.ignore import NODE_LOCKS

CODE_NAME = "code"
MAX_FILES = 15_000
MAX_BYTES = 256 * 1024 * 1024
"""Below what a plugin's folder may hold."""
_LEFT_OUT = {"__pycache__", "venv", "target", *NODE_LOCKS}
"""Environments that don't run elsewhere, and locks, beside which `node_modules` would not be taken."""


def copy_code(project: Path, folder: Path) -> None:
    """Put a copy in place of the one that is there.

    Raises:
        NotImportableError: it is too large.
        OSError: it can't be read, or the folder can't be written.
    """
    new = folder / f".{CODE_NAME}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for path in _files(project):
        place = new / path.relative_to(project)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        place.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    shutil.rmtree(folder / CODE_NAME, ignore_errors=True)
    new.rename(folder / CODE_NAME)


def same_code(project: Path, folder: Path) -> bool:
    """Whether the copy in a plugin's folder is what would be copied now.

    Raises:
        NotImportableError: the project is too large.
    """
    copy = folder / CODE_NAME
    return copy.is_dir() and _digest(project) == _digest(copy)


def _digest(root: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(root):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(os.fsencode(path.relative_to(root)) + b"\0" + content)
        digest.update(b"x" if path.stat().st_mode & 0o100 else b"-")
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    """The regular files, in order. Hidden ones, which hold secrets and histories, and links out are left out."""
    files = size = 0
    real = root.resolve()
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _LEFT_OUT)
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or name in _LEFT_OUT or not path.is_file():
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(real):
                continue
            files, size = files + 1, size + path.stat().st_size
            if files > MAX_FILES or size > MAX_BYTES:
                what = f"{root} holds more than {MAX_FILES} files or {MAX_BYTES} bytes, too much to be copied"
                raise NotImportableError("program", what, "Publish the server as a package, and name that.")
            yield path
