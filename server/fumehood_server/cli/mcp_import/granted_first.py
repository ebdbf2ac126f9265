"""Import of a server that is asked for its tools with what it is granted, which is written into fumehood.toml before.

So is each server over HTTP, and one on stdio by `--list-with-grants`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from fumehood_sandbox import Level

from fumehood_server.cli.config_edit import Entry, append_entry
from fumehood_server.cli.mcp_import.asking import lowest_useful
from fumehood_server.cli.mcp_import.configuration_place import configuration_at, make_configuration
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.first_start import build, start
from fumehood_server.cli.mcp_import.granting import AskedGrants, levels_of, make_entry, prefix_of
from fumehood_server.cli.mcp_import.import_settings import Import
from fumehood_server.cli.mcp_import.kept_secrets import ask_values, keep_values
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.plan import PlannedSecret
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.mcp_import.undo import file_restored_on_failure, write_back
from fumehood_server.config import SidecarConfig
from fumehood_server.plugins import PinProposal

Ask = Callable[[SidecarConfig], tuple[PinProposal, Level]]
"""Asks the server for its tools, by the configuration that names it. Returns them with the level that is granted."""


def import_granted_first(
    server: ServerImport, grants: AskedGrants, resolved: ResolvedServer, level: Level, ask: Ask
) -> PinProposal:
    """Grant, ask for its tools at `level`, and pin them. Where it fails, fumehood.toml and the secrets are as before.

    Raises:
        NotImportableError: a secret's value isn't known, or the server's tools can't be had or taken.
    """
    run, path = server.run, server.path
    config = configuration_at(path)

    def entry(level: Level, prefix: str) -> Entry:
        to_list = not server.is_remote
        return make_entry(grants, level, server.folder, prefix, resolved, config, list_with_grants=to_list)

    with contextlib.ExitStack() as undo:
        keep_values(config, server.plan.name, _known(grants.secrets, run), run.asker, undo)
        undo.enter_context(file_restored_on_failure(path))
        make_configuration(path)
        old = path.read_text()
        append_entry(path, entry(level, ""))
        proposal, granted = ask(configuration_at(path))
        prefix = prefix_of(proposal.report, config)
        if prefix or granted is not level:
            write_back(path, old)
            append_entry(path, entry(granted, prefix))
        server.tell_prefix(prefix)
        asyncio.run(proposal.accept())
    return proposal


def import_listed_with_grants(server: ServerImport, grants: AskedGrants, resolved: ResolvedServer) -> PinProposal:
    """A server on stdio, asked for its tools at the lowest level that uses all that it is granted.

    That level is granted, or the lowest that its tools have, where that is higher.

    Raises:
        NotImportableError: as `import_granted_first`.
    """
    build(server, server.config, resolved)  # before fumehood.toml names it
    lowest = Level.EXTERNAL if grants.hosts else Level.WRITE if grants.write else Level.READ

    def ask(config: SidecarConfig) -> tuple[PinProposal, Level]:
        proposal = start(server, config)
        useful = lowest_useful(levels_of(proposal.report))
        return proposal, lowest if lowest.allows(useful) else useful

    proposal = import_granted_first(server, grants, resolved, lowest, ask)
    counts = levels_of(proposal.report)
    lower = [level for level in Level if counts[level] and not level.allows(lowest)]
    if lower:
        server.outcome.notes.append(
            f"its tools of level {' and '.join(lower)} have a process of their own, with less than it was listed with: "
            "where it doesn't start so, `one_process = true` in its [[plugin]] has one process serve all of them"
        )
    return proposal


def _known(secrets: Iterable[PlannedSecret], run: Import) -> list[PlannedSecret]:
    """With their values, which are asked for."""
    known = ask_values(secrets, run.asker)
    for secret in known:
        if not secret.value and not secret.environment:
            what = f"the value of {secret.variable} isn't known, and the server isn't asked for its tools without"
            raise NotImportableError("secret", what, _how_to_tell(secret.variable))
    return known


def _how_to_tell(field: str) -> str:
    return f"Set the variable or give the --input that {field} names, or import at a terminal and type it."
