"""First start of an imported server: its packages are installed, and it is asked for its tools in a sandbox."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace

from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.configuration_place import START_TIMEOUT_S
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.granting import is_listed_with_grants
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.plugin_builds import build_for
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import PinProposal
from fumehood_server.plugins.environments.errors import HostsRefusedError
from fumehood_server.plugins.manifest import read_manifest

ASKED_WITHOUT = "It was asked for its tools without network, with placeholders for secrets and empty folders."

_NO_DESCRIPTORS = re.compile(r"\bEMFILE\b|too many open files", re.IGNORECASE)


def build_and_start(server: ServerImport, config: SidecarConfig, resolved: ResolvedServer) -> PinProposal:
    """Install it, and start it in its sandbox to be told its tools.

    Raises:
        NotImportableError: it doesn't start, or its tools can't be taken.
        CommandError: it can't be installed.
    """
    build(server, config, resolved)
    return start(server, config)


def start(server: ServerImport, config: SidecarConfig) -> PinProposal:
    """Start it, installed, in its sandbox to be told its tools.

    Raises:
        NotImportableError: it doesn't start, or its tools can't be taken.
    """
    server.run.say("starting it in a sandbox, to be told its tools")
    lines: list[str] = []
    settings = replace(config.server, start_timeout_s=max(config.server.start_timeout_s, START_TIMEOUT_S))
    proposal = propose_folder_pin(
        server.folder, replace(config, server=settings), lambda line: lines.append(line.message)
    )
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        more = [each for each in lines[-6:] if not any(each in one for one in said)]
        what = "\n".join((*said[:4], *more))[-MAX_PROBLEM:]
        raise NotImportableError("not_started", what, _remedy((*said, *lines), server, config))
    return proposal


def wants_build_hosts(error: CommandError) -> bool:
    """Whether a build failed that was refused a host."""
    return isinstance(error.__cause__, HostsRefusedError)


def build(server: ServerImport, config: SidecarConfig, resolved: ResolvedServer) -> None:
    """Install it.

    Raises:
        CommandError: it can't be.
    """
    hosts, private = resolved.build_hosts, resolved.build_private
    try:
        build_for(read_manifest(server.folder), config, hosts=hosts, private=private, quiet=server.run.quiet)
    except CommandError as error:
        if not server.is_new or not wants_build_hosts(error):
            raise
        # Its [[plugin]] comes with the import. One that is there before is taken as it is.
        folder, base = server.folder, server.path.parent.resolve()
        path = folder.relative_to(base) if folder.is_relative_to(base) else folder
        todo = (
            f"What it downloads as it is installed is refused. If it is to have it, write a [[plugin]] for it into "
            f"{server.path} before, with the hosts that are named above, and import it again:\n"
            f"    [[plugin]]\n    path = {json.dumps(str(path))}\n"
            f"    build_hosts = [{', '.join((*map(json.dumps, hosts), json.dumps('NAME:PORT')))}]"
        )
        todo += f"\n    allow_private = [{', '.join(map(json.dumps, private))}]" if private else ""
        raise CommandError(error.what, todo, code=error.code, status=error.status, details=error.details) from error


def _remedy(said: Iterable[str], server: ServerImport, config: SidecarConfig) -> str:
    """What can be done about a server that doesn't start, as far as it is known."""
    parts = [_asked_with(server, config)]
    by_look = [each.variable for each in server.plan.secrets if each.by_look]
    if by_look:
        plain = " ".join(f"--plain {each}" for each in by_look)
        parts.append(f"{', '.join(by_look)} counts as a secret by the look of its value alone: {plain}, if it is none.")
    if any(_NO_DESCRIPTORS.search(each) for each in said):
        parts.append("`open_files` in [limits.default] of fumehood.toml lets it open more files (1024 by default).")
    return " ".join((*parts, "Mend what it says otherwise, and import it again."))


def _asked_with(server: ServerImport, config: SidecarConfig) -> str:
    """What it had as it was asked for its tools, and how to give it more."""
    if is_listed_with_grants(config, server.folder):
        return "It was asked for its tools with what it is granted."
    how = f"`--list-with-grants {shlex.quote(server.plan.entry.name)}`"
    if not server.is_new:
        how = "`list_with_grants = true` in its [[plugin]]"
    return f"{ASKED_WITHOUT} Where it needs what it is granted in order to list them, {how} asks it with that."
