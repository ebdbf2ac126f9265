"""Paths of the code that this process executes and imports, by `sys` and /proc/self/maps."""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fumehood_server.config.symlinks import FoundPaths, found_paths, links_in_path, named_place

_PROGRAMS = ("bwrap", "uv", "npm")
"""What the sidecar and its commands run outside of any sandbox, from PATH."""


def code_paths(more: Iterable[str] = ()) -> FoundPaths:
    """Folders whose whole content is code of the sidecar, files of its code elsewhere, and symlinks on the way there.

    `more` is code that will be imported. Whoever can write in, at or above one of them decides what runs as the sidecar
    when it is started the next time.
    """
    known = {"": ""}
    links = set[Path]()

    def resolved(path: str) -> str:
        """As `os.path.realpath`, with each folder looked at once: there are hundreds of files in each."""
        real = known.get(path)
        if real is None:
            folder, _, name = path.rpartition("/")
            # What has no name of its own, and what a link leads to, is found from the root.
            is_plain = name not in {"", ".", ".."} and path[0] == "/" and not os.path.islink(path)  # noqa: PTH114 - one of very many
            if is_plain:
                real = f"{resolved(folder).rstrip('/')}/{name}"
            else:
                place = named_place(path)
                links.update(links_in_path(place))
                real = os.path.realpath(place)
            known[path] = real
        return real

    sources = (_modules(), _prefixes(), _started(), _programs(), _search_path(), _mapped(), more)
    found = {resolved(path) for paths in sources for path in paths}
    return FoundPaths(_outermost(found), tuple(sorted(links)))


def searched_folders() -> FoundPaths:
    """Folders of which only the direct entries are code, and symlinks on the way there.

    The current folder where it is imported from, PATH's, and those that the loader looks for libraries in (ld.so(8)).
    """
    listed = (os.environ.get(name, "") for name in ("PATH", "LD_LIBRARY_PATH"))
    names = [each for value in listed for each in value.replace(";", os.pathsep).split(os.pathsep) if each]
    return found_paths([*names, *_current_folder_names()])


def _prefixes() -> Iterator[str]:
    """Interpreter and virtual environment, and the folder of each symlink that leads to the program."""
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    program = Path(sys.executable) if sys.executable else None
    while program is not None:
        yield str(program)
        yield str(program.parent)  # whoever can write here can replace the symlink
        program = program.parent / program.readlink() if program.is_symlink() else None


def _started() -> Iterator[str]:
    """What this process was started by, as it was named: the interpreter, and the script."""
    yield from (each for each in {*sys.orig_argv[:1], *sys.argv[:1]} if "/" in each)


def _programs() -> Iterator[str]:
    """The file of each program: one in a folder of PATH may be a symlink to a folder that isn't."""
    yield from (path for path in map(shutil.which, _PROGRAMS) if path is not None)


def _search_path() -> Iterator[str]:
    """Folders and archives of `sys.path`, and those that the next start would add to it."""
    current = _real("")
    yield from (each for each in sys.path if _real(each) != current)
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()
    if sys.pycache_prefix:
        yield sys.pycache_prefix
    if _current_folder_names():
        # A folder there that has a module's name is imported in place of the module.
        names = sys.stdlib_module_names | {name.partition(".")[0] for name in list(sys.modules)}
        yield from (each.path for each in os.scandir(current) if each.name.partition(".")[0] in names)


def _current_folder_names() -> list[str]:
    """Entries of `sys.path` that are the current folder."""
    current = _real("")
    return [each for each in sys.path if _real(each) == current]


def _modules() -> Iterator[str]:
    """Files of what is imported, folders of packages (those without a file too), and where bytecode is kept."""
    for module in list(sys.modules.values()):
        for name in ("__file__", "__cached__"):
            path = getattr(module, name, None)
            if isinstance(path, str) and path.startswith("/"):
                yield path
        yield from (each for each in _package_path(module) if each.startswith("/"))


def _package_path(module: object) -> Iterable[str]:
    try:
        return [each for each in getattr(module, "__path__", ()) if isinstance(each, str)]
    except (TypeError, KeyError):  # no iterable; or a namespace package whose parent is gone from sys.modules
        return ()


def _mapped() -> Iterator[str]:
    """Shared libraries and whatever else is mapped as code (proc_pid_maps(5))."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:  # no /proc: the interpreter's own paths alone
        return
    for line in lines:
        _, rights, _, _, _, *path = line.split(maxsplit=5)
        if path and "x" in rights and path[0].startswith("/"):
            yield path[0]


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))  # an empty one is the current folder, as in sys.path


def _outermost(paths: set[str]) -> tuple[Path, ...]:
    """The paths that lie within no other of them."""
    within: dict[str, bool] = {"/": "/" in paths}

    def lies_within(folder: str) -> bool:
        """Whether the folder is one of the paths, or lies within one."""
        if folder not in within:
            within[folder] = folder in paths or lies_within(_folder_of(folder))
        return within[folder]

    return tuple(sorted(Path(each) for each in paths if not lies_within(_folder_of(each))))


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
