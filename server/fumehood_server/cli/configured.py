"""Plugins of fumehood.toml by name, for the commands that change it, and word of the change to the running sidecar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fumehood_server.cli.failure import CommandError
from fumehood_server.config import SidecarConfig, find_config, load_config
from fumehood_server.config.config import CONFIG_NAME, PluginConfig
from fumehood_server.model.nearest import nearest
from fumehood_server.plugins.manifest import try_manifest

CONFIG_CHANGED = "A sidecar that runs takes it up at `fumehood reload`."
_CONNECT_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class ConfiguredPlugin:
    """One `[[plugin]]`: its place in the file, and its name."""

    index: int
    name: str
    """Of its manifest; its folder's where that has none."""
    config: PluginConfig


def configuration(given: Path | None) -> tuple[Path, SidecarConfig]:
    """The file that is changed, which need not exist here, and what it says now, or will by default."""
    found = find_config(given)
    path = (found or Path(CONFIG_NAME)).absolute()
    # Packages are installed where the sidecar will look once the file is there.
    return path, replace(load_config(found), path=path)


def configured_plugins(config: SidecarConfig) -> list[ConfiguredPlugin]:
    """All of them, in the file's order."""
    return [ConfiguredPlugin(index, try_manifest(each.path).name, each) for index, each in enumerate(config.plugins)]


def find_configured(path: Path, config: SidecarConfig, name: str) -> ConfiguredPlugin:
    """The plugin of this name, or of this folder.

    Raises:
        CommandError: there is none, or there are several.
    """
    known = configured_plugins(config)
    folder = Path(name).resolve()
    found = [each for each in known if each.config.path == folder] or [each for each in known if each.name == name]
    if len(found) > 1:
        raise CommandError(f"{path} names {len(found)} plugins {name}", "Give the folder of the one that you mean.")
    if not found:
        hint = nearest(name, [each.name for each in known])
        raise CommandError(f"{path} names no plugin {name}", hint and f"{hint[0].upper()}{hint[1:]}", code="NOT_FOUND")
    return found[0]


def reload_running(config: SidecarConfig, name: str, folder: Path) -> str:
    """Have the sidecar of this configuration read a plugin's folder again. What came of it, in a sentence."""
    from fumehood_server.cli.client import SidecarClient

    by_hand = f"A sidecar that runs takes it with `fumehood plugin reload {name}`."
    listen = min(config.server.listen, key=lambda each: each.path is None)
    address = f"unix:{listen.path}" if listen.path is not None else f"{listen.host}:{listen.port}"
    try:
        client = SidecarClient(address, connect_timeout_s=_CONNECT_TIMEOUT_S)
        with client:
            try:
                client.reload_plugin(str(folder))
            except CommandError as error:
                if error.code == "PLUGIN_NOT_FOUND":  # named in the file, and not yet taken up from there
                    return f"The sidecar that runs doesn't know it yet. {CONFIG_CHANGED}"
                return f"The sidecar that runs did not take it: {error.what}. {by_hand}"
    except CommandError:
        return by_hand
    return "The sidecar that runs has taken it."
