"""Grants of an imported server: asked for one by one, and written to fumehood.toml."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fumehood_sandbox import Level

from fumehood_server.cli.config_edit import Entry
from fumehood_server.cli.configured import configured_plugins
from fumehood_server.cli.mcp_import.asking import Asker, PathGrant
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.kept_secrets import new_secrets
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.places import NamedPath
from fumehood_server.cli.mcp_import.plan import PlannedSecret, ServerPlan
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import CheckReport
from fumehood_server.plugins.lock import read_lock
from fumehood_server.plugins.registration import exposed_name

_MAX_TOOL_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGrants:
    """What a server is granted."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    named: tuple[NamedPath, ...] = ()
    """For which these are granted."""
    hosts: tuple[str, ...] = ()
    secrets: tuple[PlannedSecret, ...] = ()
    todo: tuple[str, ...] = ()
    """How to grant what isn't there yet, and was not granted."""

    def make_folders(self) -> None:
        """Make those that are to be granted and aren't there.

        Raises:
            OSError: one can't be made.
        """
        for each in (*self.read, *self.write):
            if not each.exists():
                each.mkdir(parents=True)


def ask_grants(plan: ServerPlan, asker: Asker) -> AskedGrants:
    """Ask for each path, host and secret that the configuration names."""
    read: list[Path] = []
    write: list[Path] = []
    granted: list[NamedPath] = []
    todo: list[str] = []
    for named in plan.paths:
        suggested = PathGrant.WRITE if named.path in plan.write else PathGrant.READ
        answer = asker.path(plan.name, named, suggested=suggested if named.is_there else PathGrant.NO)
        if answer is PathGrant.READ:
            read.append(named.path if named.is_there else named.folder)
        elif answer is PathGrant.WRITE:
            write.append(named.folder)
        elif not named.is_there:
            todo.append(_how_to_grant(named))
        if answer is not PathGrant.NO:
            granted.append(named)
    # What lies beneath a granted folder is granted with it, and can't be named beside it.
    write = [each for each in dict.fromkeys(write) if not any(_beneath(each, other) for other in write)]
    read = [each for each in dict.fromkeys(read) if each not in write and not any(_beneath(each, top) for top in write)]
    return AskedGrants(
        read=tuple(read),
        write=tuple(write),
        named=tuple(granted),
        hosts=tuple(each.host for each in plan.hosts if asker.host(plan.name, each)),
        secrets=tuple(each for each in plan.secrets if asker.secret(plan.name, each)),
        todo=tuple(todo),
    )


def _how_to_grant(named: NamedPath) -> str:
    make = "" if named.folder.is_dir() else f"    mkdir -p {shlex.quote(str(named.folder))}\n"
    return (
        f"{named.where} names {named.path}, which isn't there, and nothing is granted for it. If the server is to write"
        f" there, in its [[plugin]] of fumehood.toml:\n{make}    write = [{json.dumps(str(named.folder))}]"
    )


def levels_of(report: CheckReport) -> dict[Level, int]:
    """How many tools of each level can be called."""
    counts = Counter(tool.side_effects for tool in report.tools if not tool.never_called)
    return {each: counts[each] for each in Level}


def make_entry(
    grants: AskedGrants,
    level: Level,
    folder: Path,
    prefix: str,
    resolved: ResolvedServer,
    config: SidecarConfig,
    *,
    list_with_grants: bool = False,
) -> Entry:
    """The `[[plugin]]` that grants this."""
    return Entry(
        folder=folder,
        prefix=prefix,
        max_side_effects=level,
        asks_for=level,
        list_with_grants=list_with_grants,
        read=grants.read,
        write=grants.write,
        hosts=grants.hosts,
        build_hosts=resolved.build_hosts,
        allow_private=resolved.build_private,
        secrets=[each.name for each in grants.secrets],
        new_secrets=new_secrets(config, grants.secrets),
    )


def prefix_of(report: CheckReport, config: SidecarConfig) -> str:
    """A prefix where a tool's name is another plugin's already: MCP hosts put the server's name before all of them.

    Raises:
        NotImportableError: with one that is short enough, a tool's name is too long or another's still.
    """
    pinned = read_lock(config.lock_path).plugins
    by_name = {each.name: each.config for each in configured_plugins(config)}
    taken = {
        exposed_name(by_name[name], tool.name)
        for name, plugin in pinned.items()
        if name in by_name and name != report.name
        for tool in plugin.tools
    }
    names = [tool.name for tool in report.tools]
    if taken.isdisjoint(names):
        return ""
    room = _MAX_TOOL_NAME - max(map(len, names)) - len("_")
    prefix = f"{report.name.replace('-', '_')[: max(room, 0)].rstrip('_')}_"
    if prefix == "_" or any(prefix + each in taken for each in names):
        shared = next(each for each in names if each in taken)
        what = f"another plugin has a tool {shared}, and no prefix leaves its names within {_MAX_TOOL_NAME} characters"
        todo = f"Give that one an `alias` in its [plugin.tools.{shared}] of fumehood.toml, and import again."
        raise NotImportableError("name_taken", what, todo)
    return prefix


def without(secret: PlannedSecret, path: Path, config: SidecarConfig, *, asked_again: bool) -> str:
    """What holds where a secret is not granted, and how to grant it after all."""
    ((key, place),) = new_secrets(replace(config, secrets={}), (secret,)).values()
    again = "Import it again at a terminal, where you are asked again; or add" if asked_again else "If it doesn't, add"
    return (
        f"{secret.variable} is not granted, and the server may not work without it. {again} to its [[plugin]] in "
        f"{path}, and import it again:\n"
        f"    secrets = [{json.dumps(secret.name)}]\n"
        f"    [secrets.{json.dumps(secret.name)}]      # at the end of the file\n"
        f"    {key} = {json.dumps(str(place))}"
    )


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
                **({"list_with_grants": True} if each.list_with_grants else {}),
            }
    return None


def is_listed_with_grants(config: SidecarConfig, folder: Path) -> bool:
    """Whether fumehood.toml has the plugin of this folder asked for its tools with what it is granted."""
    return any(each.path == folder and each.list_with_grants for each in config.plugins)


def not_granted(plan: ServerPlan, granted: Mapping[str, Any]) -> list[str]:
    """The paths and hosts that the configuration names and fumehood.toml, whose grants stay, doesn't grant."""
    folders = [Path(each) for key in ("read", "write") for each in granted[key]]
    missing = [
        *(
            str(each.path)
            for each in plan.paths
            if each.is_there and not any(each.path.is_relative_to(top) for top in folders)
        ),
        *(each.host for each in plan.hosts if each.host not in granted["hosts"]),
    ]
    return [f"{each} is not granted: grant it in fumehood.toml, if it is to be" for each in missing]


def left_to_make(plan: ServerPlan, granted: Mapping[str, Any]) -> list[str]:
    """How to grant what isn't there yet, and lies in no folder that is granted for writing."""
    write = [Path(each) for each in granted["write"]]
    missing = (each for each in plan.paths if not each.is_there)
    return [_how_to_grant(each) for each in missing if not any(each.path.is_relative_to(top) for top in write)]


def _beneath(path: Path, other: Path) -> bool:
    return path != other and path.is_relative_to(other)
