"""Notes of `mcp wrap` on the places that a server's command line and variables name and that no option grants."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from fumehood_server.cli.dev_sidecar import DevGrants
from fumehood_server.cli.mcp_import.places import NamedPath, PlaceProblem, RefusedPlace
from fumehood_server.cli.mcp_import.plan import ServerPlan


def place_notes(plan: ServerPlan, grants: DevGrants) -> Iterator[str]:
    """What is named and not granted, each with the options that grant it."""
    granted = [each.resolve() for each in (*grants.read, *grants.write)]
    for named in plan.paths:
        if not any(named.path.is_relative_to(each) for each in granted):
            yield f"{named.path}, {named.where}, is not granted: {_how_to_grant(named)}"
    for host in plan.hosts:
        if host.host not in grants.hosts:
            yield f"{host.host}, {host.where}, is not granted: --network {host.host}"
    for refused in plan.refused_places:
        if not _is_granted(refused, granted, grants):
            todo = _todo(refused)
            yield f"{refused.name}, {refused.where}, {refused.problem}" + (f": {todo}" if todo else "")


def _how_to_grant(named: NamedPath) -> str:
    path, folder = shlex.quote(str(named.path)), shlex.quote(str(named.folder))
    if named.is_there:
        return f"--read {path}, or --write {folder}"
    make = "" if named.folder.is_dir() else f"mkdir -p {folder}, and "
    return f"it isn't there; if the server is to write it, {make}--write {folder}"


def _is_granted(refused: RefusedPlace, granted: list[Path], grants: DevGrants) -> bool:
    if refused.problem is PlaceProblem.PRIVATE:
        return _is_address(refused.name) and refused.name in grants.hosts
    if refused.problem is PlaceProblem.UNREADABLE:  # a loop of symlinks doesn't resolve
        return False
    return refused.name.startswith("/") and any(Path(refused.name).resolve().is_relative_to(each) for each in granted)


def _todo(refused: RefusedPlace) -> str:
    if refused.problem is PlaceProblem.HOME:
        return "name what is needed of it there, and grant that by --read or --write"
    if refused.problem is PlaceProblem.MISSING_AT_HOME:
        return "name a file in a folder of its own, and grant that by --write"
    if refused.problem is not PlaceProblem.PRIVATE:
        return ""
    if _is_address(refused.name):
        return f"--network {refused.name}"
    return f"name its address there, and grant that by --network ADDRESS:{refused.name.rpartition(':')[2]}"


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ip_address(host.rpartition(":")[0].strip("[]"))
        return True
    return False
