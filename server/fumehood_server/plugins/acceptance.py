"""Decides whether a plugin that was read is served: by its pin, and by the names that other plugins have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.errors import FumehoodError
from fumehood_server.model.tool import Reason, ToolDefinition
from fumehood_server.plugins.changes import diff_changes, summarise_changes, tool_changes
from fumehood_server.plugins.definitions import NAME_HINT, valid_name
from fumehood_server.plugins.loading import LoadedPlugin, add_remedy
from fumehood_server.plugins.lock import Lock, Pinned
from fumehood_server.plugins.refusal import PluginRefusedError
from fumehood_server.plugins.registration import (
    Registration,
    exposed_name,
    refuse,
    refuse_changed,
    register,
    unknown_tools,
)


def accept_or_refuse(
    plugin: PluginConfig,
    read: LoadedPlugin | PluginRefusedError,
    others: Sequence[Registration],
    config: SidecarConfig,
    lock: Lock,
) -> Registration:
    """Register a plugin that was read, or refuse it: for its pin, or for a name that one of `others` has."""
    if isinstance(read, PluginRefusedError):
        return refuse(plugin, read.name, read.reasons)
    name = read.manifest.name
    conflicts = (
        _plugin_conflicts(read, others)
        or tuple(_tool_conflicts(plugin, name, read.tools, others).values())
        or (() if read.definitions_unread else unknown_tools(config, plugin, read))
    )
    if conflicts:
        return refuse(plugin, name, conflicts)
    pinned = lock.plugins.get(name)
    if pinned is not None:
        changed = _pin_mismatch(read, pinned)
        if changed is not None:
            text = diff_changes(tool_changes(pinned.tools, read.tools))
            held = _tool_conflicts(plugin, name, pinned.tools, others)
            kept = replace(pinned, tools=tuple(tool for tool in pinned.tools if tool.name not in held))
            return refuse_changed(config, plugin, read, kept, (changed, *held.values()), diff=text)
    try:
        return register(config, plugin, read)
    except FumehoodError as exc:
        return refuse(plugin, name, (Reason("plugin_invalid", str(exc)),))


def serves_its_pin(registration: Registration, lock: Lock) -> bool:
    """Whether what is served is what is pinned now, by a copy and an environment that are in order."""
    loaded = registration.loaded
    pinned = lock.plugins.get(loaded.manifest.name) if loaded is not None else None
    return (
        loaded is not None
        and pinned is not None
        and registration.damage is None
        and loaded.environment_problem is None
        and _pin_mismatch(loaded, pinned) is None
    )


def _plugin_conflicts(read: LoadedPlugin, others: Sequence[Registration]) -> tuple[Reason, ...]:
    """Whether another plugin has its name already."""
    manifest = read.manifest
    for other in others:
        if other.plugin.name == manifest.name and other.plugin.kind is not None:
            message = (
                f'two plugins have the name "{manifest.name}": {other.plugin.path} serves it, {manifest.folder} can\'t'
            )
            return (Reason("duplicate_plugin", message, "rename one of them in its manifest and reload that name"),)
    return ()


def _tool_conflicts(
    plugin: PluginConfig, plugin_name: str, tools: Sequence[ToolDefinition], others: Sequence[Registration]
) -> dict[str, Reason]:
    """By tool, why it can't have the name that callers would know it by: no tool has it, or another one already."""
    holders = {tool.name: other.plugin.name for other in others for tool in other.plugin.tools}
    # A caller who knows a name must not reach another plugin by it because its owner's folder was touched.
    waiting = {tool.name for other in others if other.loaded is None for tool in other.plugin.tools}
    found: dict[str, Reason] = {}
    for tool in tools:
        name = exposed_name(plugin, tool.name)
        if not valid_name(name):
            message = f'with its prefix, the tool "{tool.name}" would have the name "{name}": {NAME_HINT}'
            remedy = f"give it an alias in its [plugin.tools.{tool.name}]"
            found[tool.name] = Reason("name_invalid", message, remedy)
        elif name in holders:
            has = "has it pinned and waits to be pinned again" if name in waiting else "serves it"
            message = f'two plugins declare the tool "{name}": {holders[name]} {has}, {plugin_name} can\'t'
            if holders[name] == plugin_name:
                message = f'two tools of {plugin_name} would have the name "{name}"'
            remedy = f'prefix = "..." in its [[plugin]], or alias = "..." in its [plugin.tools.{tool.name}]'
            found[tool.name] = Reason("duplicate_tool", message, remedy)
        else:
            holders[name] = plugin_name
    return found


def _pin_mismatch(read: LoadedPlugin, pinned: Pinned) -> Reason | None:
    """How a plugin differs from what was pinned, without any of the author's words."""
    name, folder = read.manifest.name, read.manifest.folder
    found = tool_changes(pinned.tools, read.tools)
    if found:
        message = f"the definitions of {name} are not the ones that were pinned: {summarise_changes(found)}"
        return Reason("definition_changed", message, add_remedy(folder, read.pin_remedy))
    if read.digest != pinned.digest:
        rest = "its definitions are"
        if read.definitions_unread:
            rest = "it was not asked for its definitions, which takes its grants"
        message = f"the files of {name} are not the ones that were pinned; {rest}"
        return Reason("digest_changed", message, add_remedy(folder, read.pin_remedy))
    return None
