"""Packs a plugin into a zip archive, stored, sorted and without times: the same files give the same bytes.

Stored and not deflated: versions of zlib compress differently. What is ignored is left out, so that the digest of what
is unpacked is the folder's own.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.errors import PluginInvalidError
from fumehood_server.model.text import printable
from fumehood_server.plugins.manifest import read_manifest
from fumehood_server.plugins.store import temporary_store
from fumehood_server.plugins.store.tree import opened_tree

PACKED_SUFFIX = ".zip"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can hold."""
_UNIX = 3


@dataclass(frozen=True, slots=True)
class Packed:
    """One packed plugin."""

    path: Path
    name: str
    version: str
    digest: str
    """Of the plugin's folder, and of what is unpacked."""
    file_digest: str
    size_bytes: int


def pack(folder: Path, output: Path | None) -> Packed:
    """Write the plugin in `folder` to `output`, by default `NAME-VERSION.zip` of the working directory.

    It is read into a copy first, and packed from there: what changes meanwhile is in it whole or not at all.

    Raises:
        PluginInvalidError: the folder holds no valid plugin, or a name that no archive can hold.
        OSError: the file can't be written.
    """
    with temporary_store() as copies:
        manifest = read_manifest(folder)
        stored = copies.put(folder)
        path = (output or Path(f"{manifest.name}-{_file_word(manifest.version)}{PACKED_SUFFIX}")).resolve()
        if path.is_relative_to(folder.resolve()):
            problem = "lies in the plugin's folder, where the next pack would pack it"
            raise PluginInvalidError(path, problem, hint="give another place with -o")
        if path.exists() and not path.is_file():
            problem = "is no regular file, and is not replaced by one"
            raise PluginInvalidError(path, problem, hint="give another place with -o")
        new = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            _write(stored.path, new, folder)
            with new.open("rb") as file:
                file_digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
            size_bytes = new.stat().st_size
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    return Packed(path, manifest.name, manifest.version, stored.digest, file_digest, size_bytes)


def _file_word(version: str) -> str:
    return "".join(each if each.isascii() and (each.isalnum() or each in "._+-") else "_" for each in version)


def _write(copy: Path, output: Path, folder: Path) -> None:
    """`folder` is the author's, for messages."""
    entries: list[tuple[bytes, int]] = []
    with opened_tree(copy, ignore=False) as found:
        for entry in found:
            mode = stat.S_IFLNK | 0o777 if entry.target else stat.S_IFREG | (0o755 if entry.executable else 0o644)
            entries.append((entry.name, mode))
    with zipfile.ZipFile(output, "x", compression=zipfile.ZIP_STORED) as archive:
        for name, mode in sorted(entries):
            info = zipfile.ZipInfo(_text(name, folder), _EPOCH)
            info.create_system = _UNIX
            info.external_attr = mode << 16
            source = copy / os.fsdecode(name)
            if stat.S_ISLNK(mode):
                archive.writestr(info, os.fsencode(source.readlink()))
                continue
            info.file_size = source.stat().st_size
            with source.open("rb") as content, archive.open(info, "w") as packed:
                while chunk := content.read(1024 * 1024):
                    packed.write(chunk)


def _text(name: bytes, folder: Path) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or "\\" in text:
        problem = f'"{printable(os.fsdecode(name))}" is a name that an archive can\'t hold on every machine'
        raise PluginInvalidError(folder, problem, hint="rename it")
    return text
