"""Digest of a plugin: names, symlinks, contents and executable bits of its folder, less what is ignored."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fumehood_server.plugins.store.tree import MAX_BYTES, MAX_FILES, Limits, opened_tree


def folder_digest(folder: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> str:
    """SHA-256 over the folder's entries in the order of their names' bytes, as "sha256:" and 64 hex digits.

    It depends on names, contents, links' texts and the owner's x bit of what isn't ignored, and on nothing else: not on
    times, owners, empty folders or the folder's own place. Blocks for as long as reading takes.

    Raises:
        PluginInvalidError: as `opened_tree`.
    """
    return _digest(folder, ignore=True, limits=Limits(max_files, max_bytes))


def copy_digest(copy: Path) -> str:
    """The digest of a copy, in which everything counts: nothing can be added to it.

    Raises:
        PluginInvalidError: as `opened_tree`.
    """
    return _digest(copy, ignore=False, limits=Limits())


def _digest(folder: Path, *, ignore: bool, limits: Limits) -> str:
    found: list[tuple[bytes, bytes, bytes]] = []
    with opened_tree(folder, ignore=ignore, limits=limits) as entries:
        for entry in entries:
            content = hashlib.sha256()
            for chunk in entry.chunks():
                content.update(chunk)
            kind = b"l" if entry.target else b"x" if entry.executable else b"f"
            found.append((entry.name, kind, content.digest()))
    total = hashlib.sha256(b"fumehood-folder-1\n")
    for name, kind, content_digest in sorted(found):
        total.update(b"%b%d:%b%b" % (kind, len(name), name, content_digest))
    return "sha256:" + total.hexdigest()
