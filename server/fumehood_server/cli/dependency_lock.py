"""Locks a plugin's dependencies (plugin.lock), for `plugin lock`, and for `plugin add` of a wheel without a lock."""

from __future__ import annotations

import os
from pathlib import Path

from fumehood_server.cli import output
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.plugin_builds import environment_failure
from fumehood_server.errors import ConfigError
from fumehood_server.model.plugin import Kind
from fumehood_server.plugins.environments.errors import InstallerError
from fumehood_server.plugins.environments.installer import find_installer
from fumehood_server.plugins.environments.plugin_lock import (
    PLUGIN_LOCK_NAME,
    PluginLock,
    plugin_lock_text,
    read_plugin_lock,
)
from fumehood_server.plugins.environments.resolve import resolve
from fumehood_server.plugins.manifest import Manifest


def lock_dependencies(
    manifest: Manifest, installer: str = "", *, quiet: bool
) -> tuple[PluginLock | None, PluginLock | None]:
    """Resolve and write the lock. Returns what was there, where that is a lock, and what is now.

    Raises:
        CommandError: it isn't a Python plugin, there is no solution, or its folder can't be written.
    """
    path = manifest.folder / PLUGIN_LOCK_NAME
    if manifest.kind not in {Kind.PYTHON, Kind.MCP}:
        raise CommandError(
            f'{manifest.name} is of kind "{manifest.kind}", and only those of "python" and "mcp" are locked here',
            "Pin what it needs with its own language's tool.",
        )
    try:
        old = read_plugin_lock(manifest.folder)
    except ConfigError:
        old = None  # it is replaced
    try:
        if not manifest.dependencies:
            path.unlink(missing_ok=True)
            return old, None
        found = find_installer(installer)
        if not quiet:
            output.note(f"{manifest.name}: resolving {', '.join(manifest.dependencies)} with {found.name}")
        new = resolve(manifest.dependencies, found)
        _replace(path, plugin_lock_text(new))
    except InstallerError as error:
        raise environment_failure(error) from error
    except OSError as error:
        text = f"{path} can't be written: {error.strerror}"
        raise CommandError(text, "Make its folder writable.", code="NOT_WRITABLE") from error
    return old, new


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
