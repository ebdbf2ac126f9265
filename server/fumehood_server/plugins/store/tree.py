"""Bounded walk of a plugin's folder by descriptors (openat(2)): regular files and symlinks, in any order.

The folder is hostile input: its author may have put anything there, and may change it meanwhile. So each folder and
file is opened from its parent's descriptor without following links, and what a descriptor leads to is what is read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable
from fumehood_server.plugins.store.ignore import IgnoreRules, ignore_rules

MAX_FILES = 20_000
"""Room for a plugin with a node_modules of its own; a home folder that was named by mistake is refused."""
MAX_BYTES = 512 * 1024 * 1024
"""About a second of hashing."""
MAX_DEPTH = 64
"""Each level of folders holds a descriptor while it is read."""
MAX_NAME_BYTES = 1024
"""Of a path from the plugin's folder. It bounds what a pattern is matched against."""
MAX_READ_S = 60.0
"""For a folder that is slow to read, or patterns that are slow to match: a thread is held as long."""
_SEEN_FOR_EACH_FILE = 10
"""Entries that may be looked at for each that may be taken: those that are left out are listed too."""

CHUNK_BYTES = 1024 * 1024
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: what was a file when the folder was listed may be a FIFO by now.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_VENV_INTERPRETERS = b".venv/bin/python"
"""A virtual environment links to the interpreter outside. No sandbox follows that: it brings its own."""
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one folder may hold."""

    files: int = MAX_FILES
    """With the folders."""
    bytes_: int = MAX_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or symlink. Good until the next one is asked for."""

    name: bytes
    """Path from the root."""
    executable: bool
    target: bytes
    """A symlink's text. Empty for a file."""
    _descriptor: int
    _walk: _Walk

    def chunks(self) -> Iterator[bytes]:
        """A file's content; a symlink's is its text.

        Raises:
            PluginInvalidError: the folder holds too many bytes, or the file can't be read.
        """
        if self.target:
            yield self._walk.counted(self.target)
            return
        try:
            while chunk := os.read(self._descriptor, CHUNK_BYTES):
                yield self._walk.counted(chunk)
        except OSError as exc:
            raise self._walk.unreadable(self.name, exc) from exc


@contextmanager
def opened_tree(folder: Path, *, ignore: bool, limits: Limits | None = None) -> Iterator[Iterator[Entry]]:
    """The entries of a folder, within the block. With `ignore`, less what its rules leave out.

    Raises:
        PluginInvalidError: on entering or while it is read: it can't be read, holds too much, too deep or for too long,
            a special file, or a symlink that is absolute or leads out of it.
    """
    root = folder.resolve()
    try:
        descriptor = os.open(root, _OPEN_FOLDER)
    except OSError as exc:
        raise PluginInvalidError(root, f"can't be read: {exc.strerror}") from exc
    try:
        rules = ignore_rules(root, descriptor) if ignore else None
        entries = _Walk(root, rules, limits or Limits()).folder(descriptor, b"", 0)
        try:
            yield entries
        finally:
            entries.close()
    finally:
        os.close(descriptor)


class _Walk:
    """One walk: what it has counted."""

    def __init__(self, root: Path, rules: IgnoreRules | None, limits: Limits) -> None:
        self._root = root
        self._rules = rules
        self._limits = limits
        self._seen = 0
        self._taken = 0
        self._bytes = 0
        self._until = time.monotonic() + MAX_READ_S

    def folder(self, descriptor: int, prefix: bytes, depth: int) -> Generator[Entry, None, None]:
        self._take(prefix, depth)
        folders: list[str] = []
        try:
            with os.scandir(descriptor) as listed:
                for found in listed:
                    name = prefix + os.fsencode(found.name)
                    if self._is_ignored(name, is_folder=found.is_dir(follow_symlinks=False)):
                        continue
                    if found.is_dir(follow_symlinks=False):
                        folders.append(found.name)
                        self._check_count(len(folders))
                    else:
                        self._take(name, depth)
                        yield from self._entry(descriptor, found, name)
        except OSError as exc:
            raise self.unreadable(prefix, exc) from exc
        for each in folders:
            name = prefix + os.fsencode(each)
            try:
                below = os.open(each, _OPEN_FOLDER, dir_fd=descriptor)
            except OSError as exc:
                raise self.unreadable(name, exc) from exc
            try:
                yield from self.folder(below, name + b"/", depth + 1)
            finally:
                os.close(below)

    def counted(self, content: bytes) -> bytes:
        self._bytes += len(content)
        if self._bytes > self._limits.bytes_:
            raise PluginInvalidError(self._root, f"holds more than {self._limits.bytes_} bytes", hint=_TOO_MUCH)
        self._check_time()
        return content

    def unreadable(self, name: bytes, problem: OSError) -> PluginInvalidError:
        return PluginInvalidError(self._path(name), f"can't be read: {problem.strerror}")

    def _is_ignored(self, name: bytes, *, is_folder: bool) -> bool:
        self._seen += 1
        if self._seen > self._limits.files * _SEEN_FOR_EACH_FILE:
            most = self._limits.files * _SEEN_FOR_EACH_FILE
            raise PluginInvalidError(self._root, f"has more than {most} entries to look at", hint=_TOO_MUCH)
        if len(name) > MAX_NAME_BYTES:
            raise PluginInvalidError(
                self._path(name), f"has a path of more than {MAX_NAME_BYTES} bytes", hint=_TOO_MUCH
            )
        self._check_time()
        return self._rules is not None and self._rules.ignores(name, is_folder=is_folder)

    def _take(self, name: bytes, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise PluginInvalidError(self._path(name), f"lies more than {MAX_DEPTH} folders deep", hint=_TOO_MUCH)
        self._taken += 1
        self._check_count(0)

    def _check_count(self, more: int) -> None:
        if self._taken + more > self._limits.files:
            raise PluginInvalidError(self._root, f"holds more than {self._limits.files} files", hint=_TOO_MUCH)

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise PluginInvalidError(self._root, f"can't be read within {MAX_READ_S:g} s", hint=_TOO_MUCH)

    def _entry(self, folder: int, found: os.DirEntry[str], name: bytes) -> Iterator[Entry]:
        kind = stat.S_IFMT(found.stat(follow_symlinks=False).st_mode)
        if kind == stat.S_IFLNK:
            text = os.fsencode(os.readlink(found.name, dir_fd=folder))
            self._check_link(name, text)
            yield Entry(name, False, text, -1, self)
            return
        if kind != stat.S_IFREG:
            raise self._special(name, kind)
        descriptor = os.open(found.name, _OPEN_FILE, dir_fd=folder)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise self._special(name, stat.S_IFMT(mode))
            yield Entry(name, bool(mode & stat.S_IXUSR), b"", descriptor, self)
        finally:
            os.close(descriptor)

    def _special(self, name: bytes, kind: int) -> PluginInvalidError:
        problem = f"is {_KINDS.get(kind, 'a special file')}, and a plugin holds files, folders and symlinks alone"
        return PluginInvalidError(self._path(name), problem, hint=f"remove it, or name it in {'.fumehoodignore'}")

    def _check_link(self, name: bytes, text: bytes) -> None:
        if name.startswith(_VENV_INTERPRETERS):
            return
        path, shown = self._path(name), printable(os.fsdecode(text))
        if text.startswith(b"/") and self._leads_inside(path):
            hint = "make it relative: the folder lies elsewhere on other machines, and its copy does here"
            raise PluginInvalidError(path, f'is an absolute symlink, to "{shown}"', hint=hint)
        if not self._leads_inside(path):
            hint = "copy what it leads to: what lies outside isn't pinned"
            raise PluginInvalidError(path, f'is a symlink out of the plugin\'s folder, to "{shown}"', hint=hint)

    def _leads_inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self._root)
        except (OSError, RuntimeError):
            return False

    def _path(self, name: bytes) -> Path:
        return self._root / os.fsdecode(name)


_TOO_MUCH = "move out what isn't needed, or name it in .fumehoodignore"
