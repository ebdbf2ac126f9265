"""Doctor's comparison of the files with what the sidecar serves: what a reload or a restart would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fumehood.v1 import plugin_service_pb2

from fumehood_server.cli.client import SidecarClient
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.json_output import level_name
from fumehood_server.config import PluginConfig, find_config, load_config
from fumehood_server.errors import ConfigError
from fumehood_server.model.text import printable
from fumehood_server.plugins.store import folder_digest
from fumehood_server.rpc.plugin_messages import grants_message

_RELOAD = "`fumehood reload` takes it up"
_RESTART = "read at start alone: a reload is refused until the sidecar has been started again"
_TOLD = frozenset(
    f"grants.{name}" for name in ("max_side_effects", "read", "write", "hosts", "deny_hosts", "private", "engine")
)
"""Settings of a plugin that are compared value by value."""


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
        found += [Change(running.name, f"{path}: {detail}", _RELOAD) for detail in _grant_changes(plugin, running)]
        try:
            same = not running.digest or folder_digest(plugin.path) == running.digest
        except ConfigError:  # the plugin's own finding tells it
            continue
        if not same:
            remedy = "`fumehood plugin add` shows how, pins it and has it taken up"
            found.append(Change(running.name, f"{path}: its files are not those that are served", remedy))
    named_plugins = {path: plugin.name for path, plugin in served.items()}
    found += _other_changes(client, named_plugins)
    return sorted(found, key=lambda each: (each.name, each.detail))


def _other_changes(client: SidecarClient, names: Mapping[str, str]) -> Iterator[Change]:
    """What else the sidecar would take up of its file, or refuse: it compares all of it with what is in force."""
    try:
        compared = client.compare_config()
    except CommandError as error:
        if error.code == "RELOAD_REFUSED":
            yield Change("reload", f"the sidecar would refuse its file: {error.what}", "mend what it names")
        elif error.code != "UNIMPLEMENTED":  # of an earlier version, which can't say
            raise
        return
    restart = list(compared.restart_keys)
    for each in compared.changes:
        if not each.plugin_path and each.key not in restart:
            yield Change("fumehood.toml", f"{each.key}: not as it is served", _RELOAD)
        elif each.plugin_path in names and each.key and each.key not in _TOLD:
            detail = f"{each.plugin_path}: {each.key}: not as it is served"
            yield Change(names[each.plugin_path], detail, _RELOAD)
    for key in restart:
        yield Change("fumehood.toml", f"{key}: not as it is served", _RESTART)
    if compared.truncated:
        yield Change("fumehood.toml", "more settings are not as they are served", _RELOAD)


def _grant_changes(plugin: PluginConfig, running: plugin_service_pb2.Plugin) -> Iterator[str]:
    """How what the configuration grants a plugin differs from what it is served with."""
    granted, had = plugin.grants.max_side_effects, level_name(running.max_side_effects)
    if granted != had:
        yield f"granted up to {granted}, served up to {had}"
    if not running.HasField("grants"):  # a sidecar that doesn't tell them
        return
    wanted = grants_message(plugin.grants)
    for field, word in _GRANTS:
        now, then = set(getattr(wanted, field)), set(getattr(running.grants, field))
        details = [
            ("granted, and not served with it", now - then),
            ("no longer granted, and served with it", then - now),
        ]
        yield from (f"{word} {printable(each)}: {detail}" for detail, some in details for each in sorted(some))


_GRANTS = (
    ("readable_paths", "reading"),
    ("writable_paths", "writing"),
    ("hosts", "host"),
    ("denied_hosts", "denied host"),
    ("private_addresses", "private address"),
    ("engines", "engine"),
)
