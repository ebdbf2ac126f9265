"""`fumehood plugin lock`: resolves a plugin's dependencies into plugin.lock, and installs what it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.failure import ExitStatus

if TYPE_CHECKING:
    from fumehood_server.plugins.environments.plugin_lock import PluginLock
    from fumehood_server.plugins.manifest import Manifest


@click.command(short_help="Choose and pin the packages that a plugin needs.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--check", is_flag=True, help="Only say whether plugin.lock fits the dependencies; status 1 if not.")
@click.option("--with", "installer", type=click.Choice(["uv", "pip"]), help="[default: uv where it can be had]")
@click.option("--no-build", is_flag=True, help="Write plugin.lock and install nothing.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def lock(
    folder: Path, check: bool, installer: str | None, no_build: bool, config_path: Path | None, as_json: bool
) -> int:
    """Choose versions for the dependencies of the python plugin in FOLDER, and for all that these require.

    plugin.lock then holds names, versions and hashes, and what it names is installed for plugins with this lock.
    Dependencies are those of `[plugin] dependencies`, else of `[project] dependencies` in a pyproject.toml. uv resolves
    for all platforms at once, pip for this one; each asks the index that it is configured for. Wheels alone are taken.

    \b
    Examples:
      fumehood plugin lock dice
      fumehood plugin lock --check                 in CI, without a network
      fumehood plugin lock dice --with pip --json
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.dependency_lock import lock_dependencies
    from fumehood_server.cli.plugin_builds import build_for
    from fumehood_server.config import find_config, load_config
    from fumehood_server.plugins.environments.plugin_lock import PLUGIN_LOCK_NAME
    from fumehood_server.plugins.manifest import read_manifest

    config = load_config(find_config(config_path))
    manifest = read_manifest(folder)
    path = manifest.folder / PLUGIN_LOCK_NAME
    if check:
        found = _checked(manifest)
        shape = {"plugin": manifest.name, "lock_path": str(path), "packages": len(found.packages) if found else 0}
        output.print_json({**shape, "ok": True}) if as_json else output.say(
            f"{PLUGIN_LOCK_NAME} fits the dependencies." if found else "There are no dependencies."
        )
        return ExitStatus.OK
    old, new = lock_dependencies(manifest, installer or "", quiet=as_json)
    if not as_json:
        _show(old, new, path)
    installed = None if no_build else build_for(manifest, config, installer=installer or "", quiet=as_json)
    if as_json:
        output.print_json(_shape(manifest, path, old, new, installed.to_json() if installed else None))
    return ExitStatus.OK


def _checked(manifest: Manifest) -> PluginLock | None:
    from fumehood_server.cli.plugin_builds import environment_failure
    from fumehood_server.plugins.environments.environments import usable_lock
    from fumehood_server.plugins.environments.errors import EnvironmentUnavailableError

    try:
        return usable_lock(manifest.name, manifest.folder, manifest.dependencies, named=manifest.folder)
    except EnvironmentUnavailableError as error:
        raise environment_failure(error) from error


def _changes(old: PluginLock | None, new: PluginLock | None) -> list[dict[str, str | None]]:
    """Packages that came, went or have another version, by name."""
    before = {(each.name, each.marker): each.version for each in old.packages} if old else {}
    after = {(each.name, each.marker): each.version for each in new.packages} if new else {}
    return [
        {"name": key[0], "old_version": before.get(key), "new_version": after.get(key)}
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _show(old: PluginLock | None, new: PluginLock | None, path: Path) -> None:
    from fumehood_server.cli import output
    from fumehood_server.plugins.environments.plugin_lock import ANY

    if new is None:
        output.say(f"There are no dependencies{': removed ' + str(path) if old else ', so there is nothing to lock'}.")
        return
    for each in _changes(old, new):
        output.say(f"  {each['name']} {each['old_version'] or '-'} -> {each['new_version'] or '-'}")
    where = "every platform" if new.resolved_for == ANY else f"{new.resolved_for} alone"
    output.say(f"Locked in {path}: {output.plural(len(new.packages), 'package')} for {where}.")


def _shape(
    manifest: Manifest, path: Path, old: PluginLock | None, new: PluginLock | None, installed: dict[str, object] | None
) -> dict[str, object]:
    return {
        "plugin": manifest.name,
        "lock_path": str(path) if new else None,
        "resolved_for": new.resolved_for if new else None,
        "packages": [
            {"name": each.name, "version": each.version, "marker": each.marker or None}
            for each in (new.packages if new else ())
        ],
        "changes": _changes(old, new),
        "installed": installed,
    }
