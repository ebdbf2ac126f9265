"""Copy of a script's project into its plugin's folder, and so pinned: bounded, without what is hidden or secret."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.left_out import LeftOut
from fumehood_server.cli.mcp_import.places import value_of, with_value
from fumehood_server.plugins.store.ignore import NODE_LOCKS

CODE_NAME = "code"
MAX_FILES = 15_000
MAX_BYTES = 256 * 1024 * 1024
"""Below what a plugin's folder may hold."""
_PROJECT_FILES = ("package.json", "pyproject.toml", "requirements.txt", "deno.json", "go.mod", ".git")
_MAX_NAMED = 8
"""Of the paths that are left out."""
_LEFT_OUT = {"__pycache__", "venv", "target", *NODE_LOCKS}
"""Environments that don't run elsewhere, and locks, beside which `node_modules` would not be taken."""


def project_around(script: Path) -> Path:
    """The folder of a script's project, without symlinks: the nearest with a file of one, else the script's own."""
    folder = script.resolve().parent
    around = next(
        (each for each in (folder, *folder.parents) if any((each / name).exists() for name in _PROJECT_FILES)), folder
    )
    return folder if around in {Path("/"), Path.home(), *Path.home().parents} else around


def is_code(path: Path, code: Path) -> bool:
    """Whether a path without symlinks is a file of the project."""
    return path.is_file() and path.is_relative_to(code)


def as_copied(text: str, code: Path) -> str:
    """An argument that names a file of the code, as the copy's: the plugin's folder is where it starts."""

    def in_copy(value: str) -> str:
        path = Path(value)
        return str(Path(CODE_NAME) / path.resolve().relative_to(code)) if _leads_to_code(path, code) else value

    return with_value(text, in_copy)


def refuse_left_out(arguments: Iterable[str], code: Path) -> None:
    """Refuse a file of the code that an argument names and that is never copied, by its name.

    Raises:
        NotImportableError: there is one.
    """
    for path in map(Path, map(value_of, arguments)):
        if _leads_to_code(path, code):
            LeftOut().refuse(path.parent.resolve() / path.name, code)


def _leads_to_code(path: Path, code: Path) -> bool:
    try:
        return path.is_absolute() and is_code(path.resolve(), code)
    except (OSError, RuntimeError, ValueError):  # a loop of symlinks, which leads nowhere
        return False


def copy_code(project: Path, folder: Path, left_out: LeftOut) -> None:
    """Put a copy in place of the one that is there.

    Raises:
        NotImportableError: it is too large.
        OSError: it can't be read, or the folder can't be written.
    """
    new = folder / f".{CODE_NAME}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for path in _files(project, left_out):
        place = new / path.relative_to(project)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        place.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    shutil.rmtree(folder / CODE_NAME, ignore_errors=True)
    new.rename(folder / CODE_NAME)


def same_code(project: Path, folder: Path, left_out: LeftOut) -> bool:
    """Whether the copy in a plugin's folder is what would be copied now.

    Raises:
        NotImportableError: the project is too large.
    """
    copy = folder / CODE_NAME
    # All of the copy counts: an earlier one may hold what is left out now.
    return copy.is_dir() and _digest(project, left_out) == _digest(copy, None)


def say_left_out(project: Path, left_out: LeftOut) -> str:
    """What of a project is not copied though it isn't hidden, in words. Empty: all of it is."""
    names = [str(path.relative_to(project)) for path, reason in _entries(project, left_out) if reason]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    what = "configurations, what the sidecar keeps to itself, and plugins"
    return f"left out of the copy of its code: {', '.join(names[:_MAX_NAMED])}{more} ({what})" if names else ""


def _digest(root: Path, left_out: LeftOut | None) -> str:
    digest = hashlib.sha256()
    for path in _files(root, left_out):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(os.fsencode(path.relative_to(root)) + b"\0" + content)
        digest.update(b"x" if path.stat().st_mode & 0o100 else b"-")
    return digest.hexdigest()


def _files(root: Path, left_out: LeftOut | None) -> Iterator[Path]:
    """The regular files that are copied, in order."""
    files = size = 0
    for path, reason in _entries(root, left_out):
        if reason:
            continue
        files, size = files + 1, size + path.stat().st_size
        if files > MAX_FILES or size > MAX_BYTES:
            what = f"{root} holds more than {MAX_FILES} files or {MAX_BYTES} bytes, too much to be copied"
            raise NotImportableError("program", what, "Publish the server as a package, and name that.")
        yield path


def _entries(root: Path, left_out: LeftOut | None) -> Iterator[tuple[Path, str]]:
    """The regular files, and the folders of what is left out, each with the reason if it is left out.

    Hidden ones, which hold secrets and histories, and links to such and out of the project are no part of it.
    """
    real = root.resolve()
    for parent, folders, names in os.walk(real):
        kept = []
        for name in sorted(each for each in folders if not _is_passed_over(each)):
            reason = left_out.reason(Path(parent, name)) if left_out else ""
            if reason:
                yield root / Path(parent, name).relative_to(real), reason
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(each for each in names if not _is_passed_over(each)):
            path = Path(parent, name)
            if not path.is_file() or (path.is_symlink() and not _leads_within(path, real)):
                continue
            yield root / path.relative_to(real), left_out.reason(path) if left_out else ""


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name in _LEFT_OUT


def _leads_within(link: Path, root: Path) -> bool:
    target = link.resolve()
    return target.is_relative_to(root) and not any(each.startswith(".") for each in target.relative_to(root).parts)
