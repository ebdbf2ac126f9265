"""Comparison of two configurations' plugins: what a reload adds, removes and changes, and what makes it refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fumehood_server.config.config import PluginConfig, SidecarConfig
from fumehood_server.errors import Refusal, RefusalReason, RefusedError
from fumehood_server.model.text import printable
from fumehood_server.plugins.registration import Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReloaded:
    """The outcome of a reload of the configuration that was taken up. Plugins by name."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unused: frozenset[str]
    """Keys of workers that no new call may use: retire them."""
    keys: tuple[str, ...] = ()
    """Dotted names of other settings that have changed."""
    notes: tuple[str, ...] = ()
    """What may not be meant so, in sentences."""


def compare_registrations(
    before: Sequence[Registration], after: Sequence[Registration], *, relays_changed: bool
) -> ConfigReloaded:
    """What the reload has changed. `relays_changed`: relays hold limits that are no longer in force."""
    old, new = _by_path(before), _by_path(after)
    old_specs, new_specs = _specs(before), _specs(after)
    relays = {key for key, relay in old_specs.items() if relay and relays_changed}
    return ConfigReloaded(
        added=tuple(each.plugin.name for path, each in new.items() if path not in old),
        removed=tuple(each.plugin.name for path, each in old.items() if path not in new),
        changed=tuple(
            each.plugin.name for path, each in new.items() if path in old and _outline(old[path]) != _outline(each)
        ),
        unused=frozenset(old_specs.keys() - new_specs.keys() | relays),
    )


def check_refused(before: Sequence[Registration], after: Sequence[Registration], config: SidecarConfig) -> None:
    """Refuse a configuration for the plugins that can't be taken: new ones, changed ones, those that served so far.

    One that was refused before, by the same entry, stays refused beside the others, as at a start.

    Raises:
        RefusedError: there is one (RELOAD_REFUSED).
    """
    problems = tuple(_problems(_by_path(before), after, config))
    if problems:
        raise RefusedError(Refusal(RefusalReason.RELOAD_REFUSED, "; ".join(problems), {"file": _shown(config)}))


def _problems(old: dict[Path, Registration], after: Sequence[Registration], config: SidecarConfig) -> Iterator[str]:
    for each in after:
        known = old.get(each.config.path)
        was_so = known is not None and known.loaded is None and _entry(known.config) == _entry(each.config)
        if each.loaded is None and not was_so:
            why = "; ".join(
                reason.message + (f" ({reason.remedy})" if reason.remedy else "") for reason in each.plugin.reasons
            )
            yield f"{_shown(config)}:{each.config.line}: the plugin {each.plugin.name} can't be taken: {why}"


def _shown(config: SidecarConfig) -> str:
    return printable(config.path or config.folder)


def _by_path(registrations: Sequence[Registration]) -> dict[Path, Registration]:
    return {each.config.path: each for each in registrations}


def _entry(plugin: PluginConfig) -> PluginConfig:
    """The entry without its place in the file."""
    return replace(plugin, line=0, tool_lines={})


def _outline(registration: Registration) -> tuple[object, ...]:
    """What a caller or an operator would notice."""
    plugin = registration.plugin
    tools = [
        (
            tool.definition.name,
            tool.permission,
            tool.timeout_s,
            tool.idle_timeout_s,
            tool.reasons,
            tool.spec and tool.spec.key,
        )
        for tool in plugin.callable_tools
    ]
    return plugin.name, plugin.digest, plugin.reasons, _entry(registration.config), tools


def _specs(registrations: Sequence[Registration]) -> dict[str, bool]:
    """Whether workers have a relay, by the key of their spec."""
    return {
        spec.key: spec.policy.relay
        for each in registrations
        for tool in each.plugin.callable_tools
        for spec in (tool.spec, tool.prepares)
        if spec is not None
    }


__all__ = ["ConfigReloaded", "check_refused", "compare_registrations"]
