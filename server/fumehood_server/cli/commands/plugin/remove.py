"""`fumehood plugin remove`: takes a plugin out of fumehood.toml and fumehood.lock."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood_server.cli.complete import configured_names

if TYPE_CHECKING:
    from fumehood_server.cli.configured import ConfiguredPlugin
    from fumehood_server.config import SidecarConfig


@click.command(short_help="Take a plugin out of fumehood.toml and fumehood.lock.")
@click.argument("name", shell_complete=configured_names)
@click.option("--config", "config_path", type=click.Path(path_type=Path), metavar="FILE", help="As for serve.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def remove(name: str, config_path: Path | None, as_json: bool) -> None:
    """Remove the [[plugin]] entry of NAME, with what it grants, and its pin. The rest of the file stays as it is.

    NAME may be the plugin's folder. A folder of yours stays; what `plugin add` unpacked of a wheel is removed, and so
    are its copy and its packages, unless a sidecar runs them or another plugin needs them. What else stays is said.

    \b
    Examples:
      fumehood plugin remove dice
      fumehood plugin remove plugins/dice --json | jq -r '.stays[]'
    """
    from fumehood_server.cli import output
    from fumehood_server.cli.config_edit import remove_entry
    from fumehood_server.cli.configured import CONFIG_CHANGED, configuration, configured_plugins, find_configured
    from fumehood_server.plugins.catalog import STORE_NAME
    from fumehood_server.plugins.leftovers import remove_plugin_leftovers
    from fumehood_server.plugins.lock import read_lock, unpin_plugin
    from fumehood_server.plugins.packages.installed import uninstall
    from fumehood_server.plugins.store import PluginStore

    path, config = configuration(config_path)
    found = find_configured(path, config, name)
    before = read_lock(config.lock_path)  # which may be refused, before anything is changed
    text = remove_entry(path, found.config.path)
    # Of two plugins with one name, the pin stays with the one that is left.
    shared = any(each.name == found.name for each in configured_plugins(config) if each.index != found.index)
    unpinned = not shared and unpin_plugin(config.lock_path, found.name)
    with contextlib.closing(PluginStore(config.server.state_dir / STORE_NAME)) as store:
        leftovers = remove_plugin_leftovers(config, found.config, before, store)
    uninstalled = uninstall(found.config.path, config.server.state_dir)
    stays = _what_stays(found, config, uninstalled=uninstalled, shared=shared)
    if as_json:
        output.print_json(
            {
                "name": found.name,
                "config_path": str(path),
                "config_removed": text,
                "unpinned": unpinned,
                "folder_removed": str(found.config.path) if uninstalled else None,
                "environments_removed": [str(each) for each in leftovers.environments],
                "copies_removed": list(leftovers.digests),
                "stays": stays,
            }
        )
        return
    output.say(f"Removed from {path}:\n{text.strip()}")
    if unpinned:
        output.say(f"Its pin is gone from {config.lock_path}.")
    if uninstalled:
        output.say(f"Removed {found.config.path}, which was unpacked for it.")
    for environment in leftovers.environments:
        output.say(f"Removed {environment}, which no other plugin runs with.")
    for each in stays:
        output.say(each)
    output.say(CONFIG_CHANGED)


def _what_stays(found: ConfiguredPlugin, config: SidecarConfig, *, uninstalled: bool, shared: bool) -> list[str]:
    stays: list[str] = []
    if shared:
        stays.append(f"Its pin stays in {config.lock_path}: another plugin has the name {found.name}.")
    if not uninstalled and found.config.path.exists():
        stays.append(f"Its folder {found.config.path} stays.")
    own = found.config.all_secrets
    others = {name for plugin in config.plugins if plugin is not found.config for name in plugin.all_secrets}
    stays += [f"[secrets.{name}] stays, and no plugin is granted it now." for name in sorted(own - others)]
    stays.append("What a sidecar runs it from and with stays until that is reloaded, and started anew.")
    return stays
