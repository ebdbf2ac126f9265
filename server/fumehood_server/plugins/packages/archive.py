"""Bounded reader of zip archives (wheels, packed plugins): names and kinds are checked first, sizes as it is read.

An archive is hostile input. Its entries become regular files, folders and symlinks in one new folder, and nothing else:
files are made anew and never through a link, since links are made last. Nothing of it is run.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable
from fumehood_server.plugins.store.tree import CHUNK_BYTES, MAX_BYTES, MAX_DEPTH, MAX_FILES, MAX_NAME_BYTES

MAX_INDEX_BYTES = 24 * 1024 * 1024
"""Of the central directory, which is read whole: room for `MAX_FILES` of the longest names."""
_MAX_LINK_BYTES = 4096
_END = struct.Struct("<4sHHHHIIH")
"""End of central directory record (PKWARE's APPNOTE, 4.3.16): signature, disks, counts, size, offset, comment."""
_END_MARK, _END64_MARK = b"PK\x05\x06", b"PK\x06\x07"
_LOCATOR_BYTES = 20
_KINDS = {0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
_PROBLEMS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What zipfile raises on archives that are damaged or made up."""


class Archive:
    """An open archive whose names were checked. Make it with `opened_archive`."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo]) -> None:
        """Keep them; `entries` has the folders too, by their names without the slash at the end."""
        self.path = path
        self.entries = entries
        self._archive = archive
        self._bytes_left = MAX_BYTES

    def text(self, name: str, limit_bytes: int) -> str:
        """A small text of the archive.

        Raises:
            PluginInvalidError: it is missing, larger, or not UTF-8.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise PluginInvalidError(self.path, f'has no "{printable(name)}"')
        content = b"".join(self._content(entry, limit_bytes))
        try:
            return content.decode()
        except UnicodeDecodeError as exc:
            raise PluginInvalidError(self.path, f'its "{printable(name)}" is not UTF-8') from exc

    def unpack(self, into: Path, place: Callable[[str], str]) -> None:
        """Write the entries into a new folder. `place` gives each name's path there; empty leaves it out.

        Raises:
            PluginInvalidError: the archive is damaged, or holds too much.
            OSError: the folder can't be written.
        """
        links: list[tuple[Path, zipfile.ZipInfo]] = []
        into.mkdir(mode=0o755)
        for name, entry in self.entries.items():
            placed = place(name)
            if not placed:
                continue
            target = into / placed
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if entry.is_dir():
                target.mkdir(mode=0o755, parents=True, exist_ok=True)
            elif kind == stat.S_IFLNK:
                links.append((target, entry))
            else:
                target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                self._write(target, entry)
        for target, entry in links:
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            text = b"".join(self._content(entry, _MAX_LINK_BYTES))
            # What leads out of the folder is refused when the folder is read, as of any plugin.
            if not text or b"\0" in text:
                raise PluginInvalidError(self.path, f'"{printable(entry.filename)}" is a symlink to nothing')
            os.symlink(text, os.fsencode(target))  # noqa: PTH211 - bytes

    def _write(self, target: Path, entry: zipfile.ZipInfo) -> None:
        mode = 0o755 if (entry.external_attr >> 16) & stat.S_IXUSR else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(target, flags, mode), "wb") as file:  # noqa: PTH123 - by descriptor
            for chunk in self._content(entry, self._bytes_left):
                self._bytes_left -= len(chunk)
                file.write(chunk)

    def _content(self, entry: zipfile.ZipInfo, limit_bytes: int) -> Iterator[bytes]:
        """The content, counted as it comes: what an entry says of its size may be made up."""
        left = limit_bytes
        try:
            with self._archive.open(entry) as opened:
                while chunk := opened.read(CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        name = printable(entry.filename)
                        raise PluginInvalidError(self.path, f'holds more than is taken: "{name}" goes over the limit')
                    yield chunk
        except _PROBLEMS as exc:
            name = printable(entry.filename)
            raise PluginInvalidError(self.path, f'"{name}" can\'t be read: {printable(str(exc))}') from exc


@contextmanager
def opened_archive(path: Path) -> Iterator[Archive]:
    """The archive, within the block.

    Raises:
        PluginInvalidError: it can't be read, or has an entry that isn't taken.
    """
    try:
        _check_index(path)
        with zipfile.ZipFile(path) as archive:
            yield Archive(path, archive, _checked(path, archive.infolist()))
    except PluginInvalidError:
        raise
    except OSError as exc:
        raise PluginInvalidError(path, f"can't be read: {exc.strerror}") from exc
    except _PROBLEMS as exc:
        raise PluginInvalidError(path, f"is not a zip archive that can be read: {printable(str(exc))}") from exc


def _check_index(path: Path) -> None:
    """Bound what zipfile reads at once, before it does."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - by descriptor
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise PluginInvalidError(path, "is not a regular file")
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES + MAX_INDEX_BYTES:
            raise PluginInvalidError(path, f"is larger than {MAX_BYTES + MAX_INDEX_BYTES} bytes")
        file.seek(max(0, size - _END.size - _LOCATOR_BYTES))
        tail = file.read()
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(_END_MARK) or not end.endswith(b"\0\0"):
        # A comment would leave it open which of several records counts.
        raise PluginInvalidError(path, "is not a zip archive, or has a comment", hint="pack it anew")
    index_bytes = _END.unpack(end)[5]
    if index_bytes > MAX_INDEX_BYTES or _END64_MARK in tail[: -_END.size]:
        raise PluginInvalidError(path, "has too many entries")


def _checked(path: Path, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    if len(entries) > MAX_FILES:
        raise PluginInvalidError(path, f"holds more than {MAX_FILES} files")
    found: dict[str, zipfile.ZipInfo] = {}
    files: set[str] = set()
    for entry in entries:
        # zipfile cuts a name at a NUL; `orig_filename` is what stands there.
        name = entry.orig_filename.removesuffix("/")
        problem = _problem(name, entry) or ("stands there twice" if name in found else "")
        if problem:
            raise PluginInvalidError(path, f'its entry "{printable(entry.orig_filename[:200])}" {problem}')
        found[name] = entry
        if not entry.is_dir():
            files.add(name)
    for name in found:
        if any(str(parent) in files for parent in PurePosixPath(name).parents):
            raise PluginInvalidError(path, f'its entry "{printable(name[:200])}" lies within a file')
    return found


def _problem(name: str, entry: zipfile.ZipInfo) -> str:
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\\" in name or "\0" in name:
        return "leads out of the folder, or is no path"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "has a name that is not Unicode"
    if size > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        return "has a path that is too long"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in _KINDS or (kind and (kind == stat.S_IFDIR) != entry.is_dir()):
        return "is a special file"
    if entry.flag_bits & 1 or entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return "is encrypted, or compressed by other means than deflate"
    return ""
