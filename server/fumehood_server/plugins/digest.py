"""Digest of a plugin's folder: names, symlinks, contents and executable bits."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable

MAX_FILES = 20_000
"""Room for a plugin with a node_modules of its own; a home folder that was named by mistake is refused."""
MAX_BYTES = 512 * 1024 * 1024
"""About a second of hashing."""

_SKIPPED = frozenset({"__pycache__", ".git"})
"""Bytecode, which changes whenever the author runs the code, and version control.

Bytecode that isn't hashed must not be run: the SDK imports a plugin's own modules from source.
"""
_CHUNK_BYTES = 1024 * 1024
_VENV_INTERPRETERS = os.fsencode(".venv/bin/python")
"""A virtual environment links to the interpreter outside. No sandbox follows that: it brings its own."""


def folder_digest(folder: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> str:
    """SHA-256 over the folder's entries in the order of their names' bytes, as "sha256:" and 64 hex digits.

    It depends on names, contents, links' texts and the owner's x bit, and on nothing else: not on times, owners or the
    folder's own place. A symlink is hashed as its text and must lead to a place within the folder, since what lies
    outside isn't pinned. A virtual environment's interpreter links are exempt.

    Raises:
        PluginInvalidError: the folder can't be read, holds too much, a special file, or a link that leads out of it.
    """
    root = folder.resolve()
    total = hashlib.sha256(b"fumehood-folder-1\n")
    read_bytes = 0
    for name, entry in _entries(root, max_files):
        try:
            tag, content = _hash_entry(root, name, entry, max_bytes - read_bytes)
        except _TooLargeError:
            hint = "move out what isn't needed"
            raise PluginInvalidError(folder, f"holds more than {max_bytes} bytes", hint=hint) from None
        except OSError as exc:
            raise PluginInvalidError(Path(entry.path), f"can't be read: {exc.strerror}") from exc
        read_bytes += content[1]
        total.update(b"%c%d:%b%b" % (tag, len(name), name, content[0]))
    return "sha256:" + total.hexdigest()


class _TooLargeError(Exception):
    """More bytes than are left."""


def _entries(root: Path, max_files: int) -> list[tuple[bytes, os.DirEntry[str]]]:
    """Everything but folders, sorted by the bytes of the path from the root."""
    found: list[tuple[bytes, os.DirEntry[str]]] = []
    folders = 0
    pending = [(str(root), b"")]
    while pending:
        folder, prefix = pending.pop()
        folders += 1
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = prefix + os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        # Installed packages keep their bytecode: without it each start would be slower.
                        if entry.name not in _SKIPPED or name.startswith(b".venv/"):
                            pending.append((entry.path, name + b"/"))
                    else:
                        found.append((name, entry))
        except OSError as exc:
            raise PluginInvalidError(Path(folder), f"can't be read: {exc.strerror}") from exc
        if len(found) + folders > max_files:
            raise PluginInvalidError(root, f"holds more than {max_files} files", hint="move out what isn't needed")
    return sorted(found, key=lambda each: each[0])


def _hash_entry(root: Path, name: bytes, entry: os.DirEntry[str], left_bytes: int) -> tuple[int, tuple[bytes, int]]:
    """The entry's kind as one byte, the digest of its content and how many bytes that was."""
    if entry.is_symlink():
        text = os.fsencode(Path(entry.path).readlink())
        if not (_leads_inside(root, entry) or name.startswith(_VENV_INTERPRETERS)):
            hint = "copy what it leads to: what lies outside isn't pinned"
            raise PluginInvalidError(
                Path(entry.path),
                f'is a symlink out of the plugin\'s folder, to "{printable(os.fsdecode(text))}"',
                hint=hint,
            )
        return ord("l"), (hashlib.sha256(text).digest(), len(text))
    # O_NOFOLLOW and O_NONBLOCK: what was a file when the folder was listed may be a link or a FIFO by now.
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise PluginInvalidError(Path(entry.path), "is neither a file, a folder nor a symlink", hint="remove it")
        return ord("x" if mode & stat.S_IXUSR else "f"), _hash_file(descriptor, left_bytes)
    finally:
        os.close(descriptor)


def _leads_inside(root: Path, entry: os.DirEntry[str]) -> bool:
    try:
        return Path(entry.path).resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _hash_file(descriptor: int, left_bytes: int) -> tuple[bytes, int]:
    digest = hashlib.sha256()
    size = 0
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        size += len(chunk)
        if size > left_bytes:
            raise _TooLargeError
        digest.update(chunk)
    return digest.digest(), size
