"""Unpacks wheels and packed files into `state_dir/installed/NAME-VERSION`, a folder like any other plugin's.

installed/.new-*          being unpacked
installed/NAME-VERSION    or NAME-VERSION-HEX, where other files of that version are there already
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.errors import ConfigError, PluginInvalidError
from fumehood_server.model.plugin import Kind
from fumehood_server.plugins.environments.dependencies import PYPROJECT_NAME
from fumehood_server.plugins.environments.plugin_lock import PLUGIN_LOCK_NAME
from fumehood_server.plugins.manifest import MANIFEST_NAME, try_manifest
from fumehood_server.plugins.packages.archive import opened_archive
from fumehood_server.plugins.packages.wheel import read_wheel
from fumehood_server.plugins.store import folder_digest

INSTALLED_NAME = "installed"
"""Folder of what was unpacked, in `state_dir`."""
WHEEL_SUFFIX = ".whl"

_HEX_CHARS = 8
_NEW = ".new-"
_KILLED_S = 24 * 3600.0
"""What was begun so long ago is no longer being unpacked."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An unpacked plugin."""

    folder: Path
    is_new: bool
    """Whether it was made now. False: the same files were there."""
    archive: str
    """Name of the file that it came from."""
    archive_digest: str
    """SHA-256 of that file, as "sha256:" and 64 hex digits."""


def install(archive: Path, state_dir: Path) -> Installed:
    """Unpack a wheel or a packed file. Nothing of it is run, and nothing that is there already is changed.

    Raises:
        PluginInvalidError: it holds no plugin, or can't be taken.
        ConfigError: there is no place for it.
    """
    root = state_dir.resolve() / INSTALLED_NAME
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
    except OSError as exc:
        raise ConfigError(root, f"can't be written: {exc.strerror}", hint="make state_dir writable") from exc
    try:
        digest = _unpack(archive, new / "plugin")
        reading = try_manifest(new / "plugin")
        if reading.manifest is None:
            first = reading.problems[0]
            problem = f"{MANIFEST_NAME} in it: {first.problem}"
            raise PluginInvalidError(archive, problem, line=first.line, hint=first.hint)
        name = f"{reading.name}-{re.sub(r'[^A-Za-z0-9._+-]', '_', reading.manifest.version)}"
        folder, is_new = _take(new / "plugin", root, name)
    except OSError as exc:
        raise ConfigError(root, f"can't unpack {archive.name}: {exc.strerror}", hint="make room in state_dir") from exc
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return Installed(folder, is_new, archive.name, digest)


def uninstall(folder: Path, state_dir: Path) -> bool:
    """Remove a folder that `install` made. Whether it is one."""
    if folder.parent != state_dir.resolve() / INSTALLED_NAME or not folder.is_dir():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True


def remove_half_unpacked(state_dir: Path) -> None:
    """Remove what an `install` that was killed left behind, a day later. Blocks."""
    before = time.time() - _KILLED_S
    for path in (state_dir / INSTALLED_NAME).glob(f"{_NEW}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < before:
                shutil.rmtree(path)


def _unpack(archive: Path, folder: Path) -> str:
    with opened_archive(archive) as opened:
        if archive.suffix == WHEEL_SUFFIX:
            plugin = read_wheel(opened)
            opened.unpack(folder, plugin.place)
            if plugin.manifest:
                (folder / MANIFEST_NAME).write_text(plugin.manifest)
            _declare(folder, plugin.dependencies)
        else:
            if MANIFEST_NAME not in opened.entries:
                hint = f"give a folder, a wheel ({WHEEL_SUFFIX}), or what `fumehood plugin pack` wrote"
                raise PluginInvalidError(archive, f"holds no plugin: it has no {MANIFEST_NAME}", hint=hint)
            opened.unpack(folder, lambda name: name)
    with archive.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _declare(folder: Path, dependencies: tuple[str, ...]) -> None:
    """Write a wheel's dependencies where a plugin has its own, unless it declares some itself."""
    manifest, project = try_manifest(folder).manifest, folder / PYPROJECT_NAME
    if dependencies and manifest is not None and manifest.kind is Kind.PYTHON and not manifest.dependencies:
        if project.exists():
            raise PluginInvalidError(project, "has no dependencies, and the wheel's metadata has some")
        project.write_text(f"[project]\ndependencies = {json.dumps(dependencies, indent=4)}\n")


def _take(new: Path, root: Path, name: str) -> tuple[Path, bool]:
    """Rename what was unpacked into place; the same files, where they are there already, stay."""
    digest = folder_digest(new)
    for folder in (root / name, root / f"{name}-{digest.removeprefix('sha256:')[:_HEX_CHARS]}"):
        if not folder.exists():
            new.rename(folder)
            return folder, True
        if folder_digest(folder) == digest or _same_but_for_its_lock(new, folder):
            return folder, False
    raise ConfigError(folder, f"is not what {name} holds", hint="remove it and try again")


def _same_but_for_its_lock(new: Path, folder: Path) -> bool:
    """Whether `folder` holds what is `new`, and a lock that was made for it when it was added."""
    made, lock = folder / PLUGIN_LOCK_NAME, new / PLUGIN_LOCK_NAME
    if lock.exists() or not made.is_file():
        return False
    shutil.copyfile(made, lock)
    same = folder_digest(new) == folder_digest(folder)
    lock.unlink()
    return same
