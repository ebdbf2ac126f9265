"""Grants of an imported server: asked for one by one, written to fumehood.toml, and its secrets to files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.cli.config_edit import Entry
from fumehood_server.cli.configured import configured_plugins
from fumehood_server.cli.mcp_import.asking import Asker, PathGrant
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import CheckReport
from fumehood_server.plugins.lock import read_lock
from fumehood_server.plugins.registration import exposed_name

SECRETS_NAME = "secrets"
"""Folder in `state_dir`, of which no plugin can be granted anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGrants:
    """What a server is granted."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    secrets: tuple[PlannedSecret, ...] = ()


def ask_grants(plan: ServerPlan, asker: Asker) -> AskedGrants:
    """Ask for each path, host and secret that the configuration names."""
    read: list[Path] = []
    write: list[Path] = []
    for named in plan.paths:
        suggested = PathGrant.WRITE if named.path in plan.write else PathGrant.READ
        answer = asker.path(plan.name, named, suggested=suggested)
        if answer is PathGrant.READ:
            read.append(named.path)
        elif answer is PathGrant.WRITE:
            write.append(named.path if named.is_folder else named.path.parent)
    # What lies beneath a granted folder is granted with it, and can't be named beside it.
    write = [each for each in dict.fromkeys(write) if not any(_beneath(each, other) for other in write)]
    read = [each for each in dict.fromkeys(read) if each not in write and not any(_beneath(each, top) for top in write)]
    return AskedGrants(
        read=tuple(read),
        write=tuple(write),
        hosts=tuple(each.host for each in plan.hosts if asker.host(plan.name, each)),
        secrets=tuple(each for each in plan.secrets if asker.secret(plan.name, each)),
    )


def make_entry(
    grants: AskedGrants, level: Level, folder: Path, prefix: str, resolved: ResolvedServer, config: SidecarConfig
) -> Entry:
    """The `[[plugin]]` that grants this."""
    return Entry(
        folder=folder,
        prefix=prefix,
        max_side_effects=level,
        asks_for=level,
        read=grants.read,
        write=grants.write,
        hosts=grants.hosts,
        build_hosts=resolved.build_hosts,
        allow_private=resolved.build_private,
        secrets=[each.name for each in grants.secrets],
        new_secrets={
            each.name: ("env", each.environment) if each.environment else ("file", secret_file(config, each.name))
            for each in grants.secrets
            if each.name not in config.secrets
        },
    )


def prefix_of(report: CheckReport, config: SidecarConfig) -> str:
    """A prefix where a tool's name is another plugin's already: MCP hosts put the server's name before all of them."""
    pinned = read_lock(config.lock_path).plugins
    by_name = {each.name: each.config for each in configured_plugins(config)}
    taken = {
        exposed_name(by_name[name], tool.name)
        for name, plugin in pinned.items()
        if name in by_name and name != report.name
        for tool in plugin.tools
    }
    return f"{report.name.replace('-', '_')}_" if any(tool.name in taken for tool in report.tools) else ""


def secret_file(config: SidecarConfig, name: str) -> Path:
    """Where the value of a secret is kept."""
    return config.server.state_dir / SECRETS_NAME / name


def write_secret(config: SidecarConfig, secret: PlannedSecret, value: str) -> str:
    """Keep a value, unless another is kept there already. What is worth saying about it, or nothing.

    Raises:
        OSError: the file can't be written.
    """
    path = secret_file(config, secret.name)
    config.server.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    raw = value.encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        same = path.is_file() and path.read_bytes().rstrip(b"\r\n") == raw.rstrip(b"\r\n")
        return "" if same else f"{path} holds another value for {secret.variable}, which stays"
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
    return ""


def granted_now(config: SidecarConfig, folder: Path) -> dict[str, Any] | None:
    """What fumehood.toml grants the plugin of this folder. None: it doesn't name it."""
    for each in config.plugins:
        if each.path == folder:
            return {
                "max_side_effects": str(each.grants.max_side_effects),
                "read": list(each.grants.read),
                "write": list(each.grants.write),
                "hosts": list(each.grants.hosts),
                "secrets": sorted(each.all_secrets),
            }
    return None


def lacking(plan: ServerPlan, granted: Mapping[str, Any]) -> list[str]:
    """What the configuration names and fumehood.toml, which stays as it is, doesn't grant."""
    folders = [Path(each) for key in ("read", "write") for each in granted[key]]
    missing = [
        *(str(each.path) for each in plan.paths if not any(each.path.is_relative_to(top) for top in folders)),
        *(each.host for each in plan.hosts if each.host not in granted["hosts"]),
        *(f"the secret {each.name}" for each in plan.secrets if each.name not in granted["secrets"]),
    ]
    return [f"{each} is not granted: grant it in fumehood.toml, if it is to be" for each in missing]


def _beneath(path: Path, other: Path) -> bool:
    return path != other and path.is_relative_to(other)
