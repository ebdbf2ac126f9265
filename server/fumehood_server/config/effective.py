"""The configuration in force as one JSON text: its SHA-256 names it in the journal. Secrets are in it by name alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import orjson

from fumehood_server.config.config import SidecarConfig
from fumehood_server.model.events import Document
from fumehood_server.model.text import printable

_NO_SETTINGS = {"path", "lock_path", "protected"}
"""Fields of the configuration that say where it is, or follow from others."""
MAX_KEYS = 200
"""Of a reload's changes that are named. One key for all is told of the rest."""


def effective_document(config: SidecarConfig) -> Document:
    """The configuration with every default. The same settings give the same bytes, wherever they stand in the file."""
    data = orjson.dumps(effective(config), option=orjson.OPT_SORT_KEYS)
    return Document(hashlib.sha256(data).digest(), data)


def effective(config: SidecarConfig) -> dict[str, Any]:
    """The same as JSON values."""
    found = {each.name: getattr(config, each.name) for each in fields(config) if each.name not in _NO_SETTINGS}
    found["secrets"] = sorted(config.secrets)
    del found["plugins"]
    found["plugin"] = {
        printable(each.path): replace(each, line=0, tool_lines={}, path=Path()) for each in config.plugins
    }
    values: dict[str, Any] = orjson.loads(orjson.dumps(found, default=_plain, option=orjson.OPT_NON_STR_KEYS))
    return values


@dataclass(frozen=True, slots=True, order=True)
class ConfigDifference:
    """One setting that two configurations have otherwise. Values are not told: some are not for everybody."""

    plugin: str
    """The folder of the plugin in whose entry it is, as shown; empty in none."""
    key: str
    """Its dotted name, within that entry; empty where the whole entry is new or gone."""


@dataclass(frozen=True, slots=True)
class ConfigComparison:
    """How the file differs from what is in force, and which of its keys only a restart takes up."""

    differences: tuple[ConfigDifference, ...]
    restart_keys: tuple[str, ...]


def differences(old: SidecarConfig, new: SidecarConfig) -> list[ConfigDifference]:
    """Each setting that they have otherwise, sorted. A secret differs where its place does."""
    before, after = effective(old), effective(new)
    plugins_before, plugins_after = before.pop("plugin"), after.pop("plugin")
    found = {ConfigDifference("", key) for key in _changed(before, after, "")}
    found |= {
        ConfigDifference("", f"secrets.{name}")
        for name in old.secrets.keys() & new.secrets.keys()
        if old.secrets[name] != new.secrets[name]
    }
    found |= {ConfigDifference(each, "") for each in plugins_before.keys() ^ plugins_after.keys()}
    for each in plugins_before.keys() & plugins_after.keys():
        keys = _changed(plugins_before[each], plugins_after[each], "")
        found |= {ConfigDifference(each, key) for key in keys}
    return sorted(found)


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted keys whose values differ, sorted."""
    keys = sorted(_changed(old, new, ""))
    return (*keys[:MAX_KEYS], f"and {len(keys) - MAX_KEYS} more") if len(keys) > MAX_KEYS else tuple(keys)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changed(before, after, f"{prefix}{key}.")
        elif before != after:
            yield prefix + key


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return printable(value)
