"""Removal of what plugins were run from that nothing leads to any more, and of what killed commands left half made.

The former are environments, and copies of removed plugins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.errors import PluginInvalidError
from fumehood_server.plugins.environments.environments import Environments, environments_folder
from fumehood_server.plugins.environments.errors import EnvironmentUnavailableError
from fumehood_server.plugins.environments.in_use import remove_environments, remove_killed_builds, unused_environments
from fumehood_server.plugins.lock import Lock, read_lock
from fumehood_server.plugins.manifest import try_manifest
from fumehood_server.plugins.packages.installed import remove_half_unpacked
from fumehood_server.plugins.store import PluginStore, folder_digest


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed."""

    digests: tuple[str, ...] = ()
    """Of the copies."""
    environments: tuple[Path, ...] = ()


def remove_leftovers(config: SidecarConfig, store: PluginStore) -> tuple[Path, ...]:
    """Remove environments of `state_dir` that nobody has used for days and no plugin leads to, and what is half made.

    Environments of the configuration's folders and of the copies that are pinned stay, in use or not. Half made is what
    a killed `plugin build`, `plugin add` or sidecar left. Returns the environments. Blocks.

    Raises:
        ConfigError: the lock can't be read.
    """
    root = environments_folder(config)
    remove_killed_builds(root)
    remove_half_unpacked(config.server.state_dir)
    unused = unused_environments(root) if config.path is not None else frozenset()  # else they are the user's own
    if not unused:
        return ()
    lock = read_lock(config.lock_path)
    return remove_environments(unused - _needed(root, config.plugins, lock, store))


def remove_plugin_leftovers(config: SidecarConfig, removed: PluginConfig, before: Lock, store: PluginStore) -> Removed:
    """Remove the copy and the environment of a plugin that was taken out of the configuration and out of the lock.

    `before` is the lock as it was. What another plugin leads to stays, and what a sidecar runs. Blocks.

    Raises:
        ConfigError: the lock can't be read.
    """
    root = environments_folder(config)
    lock = read_lock(config.lock_path)
    gone = {name: pinned for name, pinned in before.plugins.items() if name not in lock.plugins}
    others = [each for each in config.plugins if each is not removed]
    candidates = _needed(root, (removed,), Lock(gone), store)
    environments = remove_environments(candidates - _needed(root, others, lock, store))
    digests: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        digests = store.collect({pinned.digest for pinned in lock.plugins.values()})
    return Removed(digests, environments)


def _needed(root: Path, plugins: Iterable[PluginConfig], lock: Lock, store: PluginStore) -> frozenset[Path]:
    """The environments that these plugins' folders and these pins' copies lead to."""
    environments = Environments(root)
    folders = (*(each.path for each in plugins), *(store.path(each.digest) for each in lock.plugins.values()))
    found: set[Path] = set()
    for folder in folders:
        manifest = try_manifest(folder).manifest
        with contextlib.suppress(EnvironmentUnavailableError, PluginInvalidError):
            if manifest is not None and manifest.takes_packages:
                environment = environments.of_plugin(manifest.name, folder, manifest.dependencies, named=folder)
                found |= {environment.path} if environment else set()
            elif manifest is not None and manifest.build:
                digest = folder_digest(folder)
                found.add(environments.of_build(manifest.name, digest, manifest.build, named=folder).path)
    return frozenset(found)
