"""Imports the plugin that an entry point names, "module:attribute"."""

from __future__ import annotations

import importlib
import os
import sys

from fumehood_sdk.errors import PluginError
from fumehood_sdk.plugin import Plugin
from fumehood_sdk.runtime.missing_module import packages_come_from
from fumehood_sdk.sources import trust_sources_alone


def load(entrypoint: str, folder: str, expected_name: str = "", packages: str = "") -> Plugin:
    """Import a plugin.

    Args:
        entrypoint: "module:attribute".
        folder: The plugin's folder, which comes first on `sys.path`; its own `.venv` comes after what is there. Empty:
            `sys.path` is right already, and what lies on it is trusted.
        expected_name: The name in its plugin.toml. Empty: any.
        packages: The packages of its plugin.lock, which come last on `sys.path`, in place of its `.venv`. Empty: it has
            no lock.

    Raises:
        PluginError: it is not there, is no `Plugin`, or has another name.
        BaseException: whatever the plugin's own code raises.
    """
    module_name, _, attribute = entrypoint.partition(":")
    if not module_name or not attribute:
        raise PluginError(f'entrypoint {entrypoint!r} must be "module:attribute", such as "dice:plugin"')
    if folder:
        trust_sources_alone(folder)
        _extend_path(folder, packages)
        packages_come_from(packages)
    module = importlib.import_module(module_name)
    plugin: object = module
    for part in attribute.split("."):
        try:
            plugin = getattr(plugin, part)
        except AttributeError:
            raise PluginError(f"module {module_name!r} has no {attribute!r}: mend entrypoint in plugin.toml") from None
    if not isinstance(plugin, Plugin):
        raise PluginError(
            f"{entrypoint} is of type {type(plugin).__name__}, not Plugin: mend entrypoint in plugin.toml"
        )
    if expected_name and plugin.name != expected_name:
        raise PluginError(f"plugin.toml names the plugin {expected_name!r}, its code {plugin.name!r}: make them equal")
    return plugin


def _extend_path(folder: str, packages: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if packages:
        sys.path.append(packages)
        return
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = os.path.join(folder, ".venv", "lib", version, "site-packages")  # noqa: PTH118 - pathlib takes 4 ms to import
    if own not in sys.path and os.path.isdir(own):  # noqa: PTH112 - likewise
        sys.path.append(own)
