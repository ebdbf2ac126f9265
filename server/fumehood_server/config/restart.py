"""Settings that are read once, at start: a reload that changes one is refused by name."""

from __future__ import annotations

from dataclasses import fields

from fumehood_server.config.config import CONFIG_NAME, JournalConfig, ServerConfig, SidecarConfig
from fumehood_server.telemetry import TelemetrySettings

_Table = ServerConfig | JournalConfig | TelemetrySettings

_KEYS = {"socket_access": ("server.socket_mode", "server.socket_group"), "database": ("journal.store",)}
"""Keys of the file, where a setting is made of others than the one of its name."""


def needs_restart(running: SidecarConfig, wanted: SidecarConfig) -> tuple[str, ...]:
    """Dotted keys whose change only a restart can take up, sorted. Those of `[plugin]`, limits and so on need none."""
    keys = {key for name in _changed(running.server, wanted.server) for key in _KEYS.get(name, (f"server.{name}",))}
    keys |= {key for name in _changed(running.journal, wanted.journal) for key in _KEYS.get(name, (f"journal.{name}",))}
    keys |= {f"telemetry.{name}" for name in _changed(running.telemetry, wanted.telemetry)}
    # What the machine can enforce was checked against it, and the state folder made for it.
    if running.sandbox.minimum is not wanted.sandbox.minimum:
        keys.add("sandbox.minimum")
    if running.approvals.webhook != wanted.approvals.webhook:  # its address and its sender are made at start
        keys.add("approvals.webhook")
    elif running.approvals.webhook is not None:
        names = running.approvals.webhook.secrets
        keys |= {f"secrets.{name}" for name in names if running.secrets[name] != wanted.secrets[name]}
    if running.mcp != wanted.mcp:  # its process is started with it
        keys.add("mcp")
    if running.engines != wanted.engines:  # their libraries are imported and their connections opened at start
        keys.add("engine")
    if running.orchestration != wanted.orchestration:
        keys.add("orchestration")
    keys |= {
        f"secrets.{each.secret}"
        for each in running.engines
        if each.secret in wanted.secrets and running.secrets[each.secret] != wanted.secrets[each.secret]
    }
    if running.middleware != wanted.middleware:  # it is imported at start
        keys.add("middleware")
    # Kubernetes replaces a mounted file by turning a symlink: where the paths are relative, all of them would move.
    if running.lock_path != wanted.lock_path:
        keys.add(f"the folder of {CONFIG_NAME}")
    return tuple(sorted(keys))


def _changed(running: _Table, wanted: _Table) -> list[str]:
    return [each.name for each in fields(running) if getattr(running, each.name) != getattr(wanted, each.name)]


__all__ = ["needs_restart"]
