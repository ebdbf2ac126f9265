"""Diff of a plugin's files: the pinned copy against a folder, by content; texts as a bounded unified diff (difflib)."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable
from fumehood_server.plugins.store import copy_digest
from fumehood_server.plugins.store.tree import opened_tree

_MAX_DIFFED_FILES = 64
_MAX_DIFFED_BYTES = 64 * 1024
_MAX_DIFFED_LINES = 2000
"""difflib takes quadratic time: larger files are named and not shown."""
_MAX_DIFF_LINES = 400
_LINE_CHARS = 160


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Names of the files that came, went and differ, each sorted and printable, and what differs in texts."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    diff: str


def file_changes(copy: Path, digest: str, folder: Path) -> FileChanges | None:
    """What differs between the pinned copy with this digest and a folder. None: the copy isn't here, or is damaged.

    Raises:
        PluginInvalidError: the folder can't be read.
    """
    try:
        if copy_digest(copy) != digest:
            return None
    except PluginInvalidError:
        return None
    old, new = _contents(copy, ignore=False), _contents(folder, ignore=True)
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    shown = frozenset([*changed, *added, *removed][:_MAX_DIFFED_FILES])
    before, after = _texts(copy, shown, ignore=False), _texts(folder, shown, ignore=True)
    lines: list[str] = []
    for name in sorted(shown):
        lines += _diff(name, before.get(name, []), after.get(name, []), was=name in old, is_=name in new)
    cut = [line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…" for line in lines[:_MAX_DIFF_LINES]]
    if len(lines) > _MAX_DIFF_LINES:
        cut.append(f"… {len(lines) - _MAX_DIFF_LINES} more lines")
    return FileChanges(_names(added), _names(removed), _names(changed), "\n".join(cut))


def _contents(folder: Path, *, ignore: bool) -> dict[bytes, tuple[bool, bytes, bytes]]:
    """Each file's executable bit, link's text and hash."""
    found: dict[bytes, tuple[bool, bytes, bytes]] = {}
    with opened_tree(folder, ignore=ignore) as entries:
        for entry in entries:
            content = hashlib.sha256()
            for chunk in entry.chunks():
                content.update(chunk)
            found[entry.name] = (entry.executable, entry.target, content.digest())
    return found


def _texts(folder: Path, names: Collection[bytes], *, ignore: bool) -> dict[bytes, list[str] | None]:
    """The lines of those files. None: it is no text, or too long to compare."""
    found: dict[bytes, list[str] | None] = {}
    with opened_tree(folder, ignore=ignore) as entries:
        for entry in entries:
            if entry.name not in names:
                continue
            content = b""
            for chunk in entry.chunks():
                content += chunk[: _MAX_DIFFED_BYTES + 1 - len(content)]
            found[entry.name] = _lines(content)
    return found


def _lines(content: bytes) -> list[str] | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    lines = [printable(line) for line in text.split("\n")]
    return None if len(content) > _MAX_DIFFED_BYTES or len(lines) > _MAX_DIFFED_LINES or "\0" in text else lines


def _diff(name: bytes, old: list[str] | None, new: list[str] | None, *, was: bool, is_: bool) -> list[str]:
    shown = printable(os.fsdecode(name))
    heads = (f"{shown} (pinned)" if was else "(none)", f"{shown} (now)" if is_ else "(none)")
    if old is None or new is None:
        return [f"--- {heads[0]}", f"+++ {heads[1]}", "  (not shown: no text, or too long)"]
    lines = list(difflib.unified_diff(old, new, *heads, n=1, lineterm=""))
    return lines or [f"--- {heads[0]}", f"+++ {heads[1]}", "  (its mode differs, or it is empty)"]


def _names(names: list[bytes]) -> tuple[str, ...]:
    return tuple(printable(os.fsdecode(name)) for name in names)
