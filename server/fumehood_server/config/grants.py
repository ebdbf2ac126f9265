"""Granted paths: resolved, and refused where they overlap what no plugin may read or write."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.config.database_files import DatabaseFiles
from fumehood_server.config.library_settings import credential_paths, settings_paths
from fumehood_server.config.middleware_code import middleware_code
from fumehood_server.config.mounts import read_mounts
from fumehood_server.config.own_code import code_paths, searched_folders
from fumehood_server.config.symlinks import found_paths, links_in_path

_KERNEL_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/boot")
"""The machine's programs and settings. They are mounted in sandboxes: a write there would reach all of them."""


class GrantError(ValueError):
    """One path can't be granted. `key` is "read" or "write", `index` its position in that array."""

    def __init__(self, key: str, index: int, problem: str, hint: str) -> None:
        """Keep the position, the problem and the remedy."""
        super().__init__(problem)
        self.key = key
        self.index = index
        self.problem = problem
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Protected:
    """A path that no plugin may write, and none may read either where `unreadable`."""

    path: Path
    what: str
    unreadable: bool = False
    within: bool = True
    """Whether what lies deeper in it is protected as well, or only the folder and its own entries."""


def protected_paths(
    *,
    state_dir: Path,
    lock_path: Path,
    config_path: Path | None,
    plugin_folders: Sequence[Path],
    secret_files: Mapping[str, Path],
    sockets: Sequence[Path],
    checkpoint_file: Path | None = None,
    checkpoint_command: Sequence[Path] = (),
    database: DatabaseFiles | None = None,
    config_is_secret: bool = False,
    grammars: Sequence[Path] = (),
    client_secret: Collection[Path] = (),
    client_public: Collection[Path] = (),
) -> tuple[Protected, ...]:
    """What a grant must not overlap: the sidecar's state, configuration, sockets, secrets and plugins.

    Paths are absolute, as they are named: each symlink on the way to one is protected from writing, since whoever
    replaces it decides what is there. `checkpoint_command` are the files of a command that runs as the sidecar;
    `client_secret` is what the commands show it, `client_public` are certificates that they know it by, and their own.
    The copies that plugins run from lie in its state. For a write grant there is `protected_code` beside them.
    """
    files = database or DatabaseFiles()
    own = [
        *_named(state_dir, "the sidecar's state_dir", unreadable=True),
        # Where it is a link, as `plugin dev` makes it.
        *_named(state_dir / "environments", "the packages of plugins"),
        *_named(lock_path, "the lock file"),
    ]
    if config_path is not None:
        own += _named(config_path, "the sidecar's configuration", unreadable=config_is_secret)
    folders = [
        *((each, "the folder of a program that the sidecar runs for checkpoints") for each in checkpoint_command),
        *(((checkpoint_file, "the folder of the journal's checkpoints"),) if checkpoint_file is not None else ()),
    ]
    for path in sockets:
        own += socket_folder(path)
    for path, what in folders:
        own += _named(path.parent, what, within=False)
    for path in checkpoint_command:
        own += _named(path, "what the sidecar runs for checkpoints", within=False)
    for path in files.sockets:
        own += _named(path, "the folder of the database's socket", within=False)
    for path in files.plain:
        own += _named(path, "what the connection to the database is made by")
    for path in grammars:
        own += _named(path, "the file of a grammar")
    own += _client(client_secret, client_public)
    plugins = [each for folder in plugin_folders for each in plugin_folder(folder)]
    for path in files.secret:
        own += _named(path, "what the connection to the database is made by", unreadable=True)
    secrets = [
        Protected(path, f"the file of the secret {name}", unreadable=True)
        for name, file in secret_files.items()
        # Both the path of the symlink and that of its target now.
        for path in {file.parent.resolve() / file.name, file.resolve()}
    ]
    theirs = [Protected(path, "credentials of the sidecar's user", unreadable=True) for path in credential_paths()]
    return (*own, *plugins, *secrets, *theirs)


def socket_folder(path: Path) -> Iterator[Protected]:
    """The folder of a socket that the sidecar listens on, and each symlink on the way there."""
    return _named(path.parent, "the folder of the sidecar's socket", within=False)


def plugin_folder(path: Path) -> Iterator[Protected]:
    """The folder of a plugin, and each symlink on the way there."""
    return _named(path, "the folder of a plugin")


def _client(secret: Collection[Path], public: Collection[Path]) -> Iterator[Protected]:
    for path in secret:
        yield from _named(path, "what commands show the sidecar", unreadable=True)
    for path in public:
        yield from _named(path, "a certificate that commands use")


def _named(path: Path, what: str, *, unreadable: bool = False, within: bool = True) -> Iterator[Protected]:
    """What the path leads to, and each symlink on the way there."""
    yield Protected(path.resolve(), what, unreadable=unreadable, within=within)
    for link in links_in_path(path):
        yield Protected(link, f"a symlink to {what}")


def protected_code(middleware: Collection[str] = ()) -> tuple[Protected, ...]:
    """What a write grant must not overlap either: the code that the sidecar runs, and the machine's own folders.

    With each symlink by which one was named, since whoever replaces it decides what is there at the next start.
    It looks at the file of each module that is imported, which takes some 30 ms. `middleware` names some that will be.
    """
    parts = (
        (found_paths(_SYSTEM_FOLDERS), "the system's own folder", True),
        (code_paths(middleware_code(middleware)), "the sidecar's own code", True),
        (settings_paths(), "the settings of a library that the sidecar uses", True),
        (found_paths([tempfile.gettempdir()]), "the sidecar's folder of temporary files", False),
        (searched_folders(), "a folder that programs are looked for in", False),
    )
    paths = [Protected(path, what, within=within) for found, what, within in parts for path in found.paths]
    return (*paths, *(Protected(link, f"a symlink to {what}") for found, what, _ in parts for link in found.links))


def resolve_grants(
    read: Sequence[str], write: Sequence[str], *, folder: Path, protected: Sequence[Protected]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The granted paths, absolute, without symlinks, sorted and each once. Relative ones start at `folder`.

    A path is granted as it is when the configuration is read: a symlink that is replaced later grants nothing.

    Raises:
        GrantError: a path is missing, is the root or the kernel's, overlaps something protected, or lies beneath a
            path that is granted for writing.
    """
    writable = [_resolve("write", index, text, folder) for index, text in enumerate(write)]
    readable = [_resolve("read", index, text, folder) for index, text in enumerate(read)]
    for index, path in enumerate(writable):
        if not path.is_dir():
            raise GrantError("write", index, f'"{path}" is not a folder', "grant the folder around it")
    check_writable(writable, protected)
    for index, path in enumerate(writable):
        for other in writable:
            if other != path and path.is_relative_to(other):
                raise GrantError("write", index, f'"{path}" lies beneath "{other}"', "it is granted with it: remove it")
    for index, path in enumerate(readable):
        _check_protected("read", index, path, [each for each in protected if each.unreadable])
        for other in writable:
            if path.is_relative_to(other):
                problem = f'"{path}" lies beneath "{other}", which is granted for writing'
                raise GrantError(
                    "read", index, problem, "tools of level read would see what others write: separate them"
                )
    return tuple(sorted({str(path) for path in readable})), tuple(sorted({str(path) for path in writable}))


def check_writable(paths: Sequence[Path], protected: Sequence[Protected]) -> None:
    """Hold resolved paths that are granted for writing against what is protected.

    Raises:
        GrantError: one overlaps it.
    """
    for index, path in enumerate(paths):
        _check_protected("write", index, path, protected)


def check_links(key: str, texts: Sequence[str], *, folder: Path, writable: Sequence[str]) -> None:
    """Refuse a path that goes through a symlink which a plugin can replace: one within a folder of `writable`.

    Else the plugin could put a symlink in place of another plugin's grant, and its target would be granted when the
    configuration is read the next time.

    Raises:
        GrantError: there is one.
    """
    folders, mounts = tuple(map(Path, writable)), read_mounts()
    for index, text in enumerate(texts):
        for link in links_in_path(folder / text):
            if any(link.is_relative_to(each) or mounts.overlap(each, link, within=False) for each in folders):
                problem = f'"{folder / text}" leads through the symlink "{link}", which a plugin may write'
                raise GrantError(key, index, problem, "look who made the link, and grant what it should lead to")


def _resolve(key: str, index: int, text: str, folder: Path) -> Path:
    if not text or "\0" in text:
        raise GrantError(key, index, "an empty path can't be granted", 'write "." for the folder of the configuration')
    try:
        path = (folder / text).resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "its symlinks form a loop"
        raise GrantError(key, index, f'"{folder / text}" can\'t be granted: {reason}', "create it first") from exc
    if path == Path("/"):
        raise GrantError(key, index, "the whole file system can't be granted", "grant the folders that are needed")
    for kernel in _KERNEL_FOLDERS:
        if path.is_relative_to(kernel):
            raise GrantError(key, index, f"\"{path}\" is the kernel's and can't be granted", "grant files on a disk")
    if not (path.is_dir() or path.is_file()):
        raise GrantError(key, index, f'"{path}" is neither a file nor a folder', "sockets and devices can't be granted")
    return path


def _check_protected(key: str, index: int, path: Path, protected: Sequence[Protected]) -> None:
    verb = "read" if key == "read" else "write"
    for each in protected:
        if each.path.is_relative_to(path) or (each.within and path.is_relative_to(each.path)):
            problem = f'"{path}" overlaps {each.what}, "{each.path}", which no plugin may {verb}'
            raise GrantError(key, index, problem, "grant a narrower folder")
    mounts = read_mounts()
    for each in protected:
        if mounts.overlap(path, each.path, within=each.within):
            problem = f'"{path}" overlaps {each.what}, "{each.path}", by another mount, and no plugin may {verb} that'
            raise GrantError(key, index, problem, "grant a narrower folder, or unmount it there")
