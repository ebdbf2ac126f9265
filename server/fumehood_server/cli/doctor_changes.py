"""Doctor's comparison of the files with what the sidecar serves: what a reload or a restart would change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.json_output import level_name
from fumehood_server.config import find_config, load_config
from fumehood_server.errors import ConfigError
from fumehood_server.model.text import printable
from fumehood_server.plugins.store import folder_digest

_RELOAD = "`fumehood reload` takes it up"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference."""

    name: str
    """The plugin's."""
    detail: str
    remedy: str


def pending_changes(client: SidecarClient, config_path: Path | None) -> list[Change]:
    """What the configuration and the folders of plugins say otherwise than what is served. Empty if it can't be read.

    Raises:
        CommandError: the sidecar gives no answer.
    """
    try:
        config = load_config(find_config(config_path))
    except ConfigError:
        return []
    served = {plugin.path: plugin for plugin in client.list_plugins()}
    named = {printable(plugin.path): plugin for plugin in config.plugins}
    found = [
        Change(served[path].name, f"{path}: no longer in the configuration", _RELOAD) for path in served.keys() - named
    ]
    found += [Change(Path(path).name, f"{path}: not served yet", _RELOAD) for path in named.keys() - served]
    for path in named.keys() & served.keys():
        plugin, running = named[path], served[path]
        granted, had = plugin.grants.max_side_effects, level_name(running.max_side_effects)
        if granted != had:
            found.append(Change(running.name, f"{path}: granted up to {granted}, served up to {had}", _RELOAD))
        try:
            same = not running.digest or folder_digest(plugin.path) == running.digest
        except ConfigError:  # the plugin's own finding tells it
            continue
        if not same:
            remedy = f"`fumehood plugin add` shows how and pins it, `fumehood plugin reload {running.name}` takes it up"
            found.append(Change(running.name, f"{path}: its files are not those that are served", remedy))
    return sorted(found, key=lambda each: (each.name, each.detail))
