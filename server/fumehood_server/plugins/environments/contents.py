"""Digest and signature of a folder that is run as it lies there, bytecode and links included."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

_CHUNK_BYTES = 1024 * 1024


class ContentsError(OSError):
    """Something lies there that can't be run from a copy: a symlink that leads out, a device, a socket."""


def contents_digest(folder: Path) -> str:
    """SHA-256 over names, the owner's x bit, contents and texts of symlinks, as "sha256:" and 64 hexadecimal digits.

    Raises:
        OSError: it can't be read, or is a `ContentsError`.
    """
    total = hashlib.sha256(b"fumehood-packages-1\n")
    root = folder.resolve()
    for name, path in _files(folder):
        if Path(path).is_symlink():
            text = os.fsencode(Path(path).readlink())
            if not Path(path).resolve().is_relative_to(root):
                raise ContentsError(f"{path} leads out of the folder")
            total.update(b"l%d:%b%b" % (len(name), name, hashlib.sha256(text).digest()))
            continue
        # O_NOFOLLOW, O_NONBLOCK: what was a file when the folder was listed may be a link or a FIFO by now.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise ContentsError(f"{path} is not a regular file")
            content = hashlib.sha256()
            while chunk := file.read(_CHUNK_BYTES):
                content.update(chunk)
        tag = b"x" if mode & stat.S_IXUSR else b"f"
        total.update(b"%b%d:%b%b" % (tag, len(name), name, content.digest()))
    return "sha256:" + total.hexdigest()


def contents_signature(folder: Path) -> bytes:
    """Digest over names, inodes, sizes and times of change: equal only if nobody has written since.

    The time of change (st_ctime, inode(7)) can't be set by a program, bar by setting the machine's clock.

    Raises:
        OSError: as `contents_digest`.
    """
    total = hashlib.sha256()
    for name, path in _files(folder):
        found = os.lstat(path)
        fields = (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        total.update(b"%d:%b%b" % (len(name), name, repr(fields).encode()))
    return total.digest()


def contents_bytes(folder: Path) -> int:
    """How many bytes lie there. What vanishes meanwhile counts as nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - one of very many
            except FileNotFoundError:
                continue
    return total


def _files(folder: Path) -> Iterator[tuple[bytes, str]]:
    """Every file and symlink with its name from the folder, in the order of the names' bytes."""
    found: list[tuple[bytes, str]] = []
    pending = [(str(folder), b"")]
    while pending:
        parent, prefix = pending.pop()
        with os.scandir(parent) as entries:
            for entry in entries:
                name = prefix + os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, name + b"/"))
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    found.append((name, entry.path))
                else:
                    raise ContentsError(f"{entry.path} is neither a file, a folder nor a symlink")
    return iter(sorted(found))
