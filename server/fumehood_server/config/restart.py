"""Settings that are read once, at start: a reload that changes one is refused by name."""

from __future__ import annotations

from dataclasses import fields

from fumehood_server.config.config import CONFIG_NAME, ServerConfig, SidecarConfig

_KEYS = {"socket_access": ("server.socket_mode", "server.socket_group")}
"""Keys of the file, where a setting is made of others than the one of its name."""


def needs_restart(running: SidecarConfig, wanted: SidecarConfig) -> tuple[str, ...]:
    """Dotted keys whose change only a restart can take up, sorted: all of `[server]`, and `sandbox.minimum`."""
    changed = [
        each.name
        for each in fields(ServerConfig)
        if getattr(running.server, each.name) != getattr(wanted.server, each.name)
    ]
    keys = {key for name in changed for key in _KEYS.get(name, (f"server.{name}",))}
    # What the machine can enforce was checked against it, and the state folder made for it.
    if running.sandbox.minimum is not wanted.sandbox.minimum:
        keys.add("sandbox.minimum")
    # Kubernetes replaces a mounted file by turning a symlink: where the paths are relative, all of them would move.
    if running.lock_path != wanted.lock_path:
        keys.add(f"the folder of {CONFIG_NAME}")
    return tuple(sorted(keys))


__all__ = ["needs_restart"]
