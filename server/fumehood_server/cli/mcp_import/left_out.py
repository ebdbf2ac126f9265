"""What is never copied into a plugin with the code around it: configurations of hosts, the sidecar's files, plugins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fumehood_server.cli.mcp_import.known_names import reason_by_name
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.config import SidecarConfig

_TODO = "Keep its code apart from that: move one of them, and import it again."


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files and folders, each with what it is. Files that are known by their names come to them, wherever they lie.

    Paths are absolute. A file is known by its inode as well, so by any of its links.
    """

    paths: Mapping[Path, str] = field(default_factory=dict)
    inodes: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def extended(self, paths: Iterable[tuple[Path, str]]) -> LeftOut:
        """These and more."""
        named, inodes = dict(self.paths), dict(self.inodes)
        for path, what in paths:
            named |= {path.parent.resolve() / path.name: what, path.resolve(): what}
            if path.is_file():
                inodes[_inode(path)] = what
        return LeftOut(named, inodes)

    def reason(self, path: Path) -> str:
        """What a path is that is left out, or what its symlink leads to. Empty: it is copied.

        The folder that it lies in is absolute, without symlinks, and not left out itself.
        """
        real = path.resolve() if path.is_symlink() else path
        places = (path, real, *(real.parents if path.is_symlink() else ()))
        found = next((self.paths[each] for each in places if each in self.paths), "")
        if not found and self.inodes and path.is_file():
            found = self.inodes.get(_inode(path), "")
        return found or reason_by_name(path) or (reason_by_name(real) if real != path else "")

    def refuse(self, file: Path, code: Path) -> None:
        """Refuse a file of the code that the command line itself names.

        Raises:
            NotImportableError: it, or a folder that it lies in, is left out.
        """
        around = [each for each in file.parents if each != code and each.is_relative_to(code)]
        for each in (file, *around):
            what = self.reason(each)
            if what:
                where = "it is" if each == file else f"{each} is"
                reason = f"its command line names {file}, which is copied into no plugin: {where} {what}"
                raise NotImportableError("program", reason, _TODO)


def left_out_of(code: Path, known: LeftOut, config: SidecarConfig, folder: Path, imported: Iterable[Path]) -> LeftOut:
    """What is left out of a copy of `code`: what is `known` by its host, what the sidecar protects, and plugins.

    `folder` is the plugin's, `imported` are those that imports have written beside it. The folder of a plugin that the
    code lies in is none.

    Raises:
        NotImportableError: the code lies within what no plugin may read.
    """
    own = (
        (config.server.state_dir, "the sidecar's state"),
        *(((config.path, "the sidecar's configuration"),) if config.path is not None else ()),
        (config.lock_path, "the sidecar's lock"),
    )
    # Each is without symlinks, or is one; those of folders are not followed.
    protected = [(each.path, each.what) for each in config.protected if each.unreadable and not _is_link(each.path)]
    for path, what in ((config.server.state_dir.resolve(), own[0][1]), *protected):
        if code.is_relative_to(path):
            raise NotImportableError("program", f"its code in {code} lies in {path}: it is {what}", _TODO)
    plugins = (
        folder,
        *imported,
        *(each.path for each in config.plugins),
    )
    beneath = [(each, "the folder of a plugin") for each in plugins if not code.is_relative_to(each.resolve())]
    return known.extended(own + tuple(protected) + tuple(beneath))


def _is_link(path: Path) -> bool:
    return path.is_symlink() and path.is_dir()


def _inode(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - of one that is a link, what it leads to
    return status.st_dev, status.st_ino
