"""Import of a server that fumehood.toml doesn't name yet: asks for grants, writes its plugin, grants and pins it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from fumehood_server.cli.config_edit import append_entry
from fumehood_server.cli.mcp_import.configuration_place import configuration_at, make_configuration
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.first_start import build_and_start
from fumehood_server.cli.mcp_import.granted_first import import_listed_with_grants
from fumehood_server.cli.mcp_import.granting import (
    AskedGrants,
    ask_grants,
    granted_now,
    levels_of,
    make_entry,
    prefix_of,
)
from fumehood_server.cli.mcp_import.kept_secrets import ask_values, check_secrets, keep_values
from fumehood_server.cli.mcp_import.outcome import Status
from fumehood_server.cli.mcp_import.overlaps import check_overlaps
from fumehood_server.cli.mcp_import.remote_import import import_remote
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.mcp_import.undo import file_restored_on_failure, folder_restored_on_failure
from fumehood_server.plugins import PinProposal


def import_new(server: ServerImport, resolved: ResolvedServer) -> None:
    """Ask for its grants, whose folders are made; write it, grant and pin it, and tell what became of it.

    Where it fails, its folder, fumehood.toml and the secrets are as they were.

    Raises:
        NotImportableError: what is granted overlaps something, or the server doesn't start or answer.
        ConfigError: fumehood.toml would not be valid.
    """
    asker = server.run.asker
    grants = ask_grants(server.plan, asker)
    check_secrets(server.config, server.folder, grants.secrets, asks=asker.asks)
    grants.make_folders()
    check_overlaps(grants, server.config, server.folder)
    left_out = [each for each in server.plan.secrets if each not in grants.secrets]
    resolved = resolved.without_secrets(left_out)
    server.path.parent.mkdir(parents=True, exist_ok=True)
    with folder_restored_on_failure(server.folder, unless=lambda: _is_named(server)):
        resolved.content.write(server.folder)
        proposal = _way_of(server)(server, grants, resolved)
    server.tell_granted(proposal.report, granted_now(configuration_at(server.path), server.folder) or {})
    server.outcome.todo_later += grants.todo
    server.tell_left_out(left_out)
    server.outcome.status = Status.IMPORTED


def _way_of(server: ServerImport) -> Callable[[ServerImport, AskedGrants, ResolvedServer], PinProposal]:
    if server.is_remote:
        return import_remote
    return import_listed_with_grants if server.is_to_list_with_grants else _import_local


def _is_named(server: ServerImport) -> bool:
    return granted_now(configuration_at(server.path), server.folder) is not None


def _import_local(server: ServerImport, grants: AskedGrants, resolved: ResolvedServer) -> PinProposal:
    """Build it and start it to be told its tools, by which a level is asked for; then grant and pin it."""
    run, path = server.run, server.path
    proposal = build_and_start(server, server.config, resolved)
    config = configuration_at(path)
    level = run.asker.level(server.plan.name, levels_of(proposal.report))
    with contextlib.ExitStack() as undo:
        # Secrets' files first: the configuration that names them is loaded as a whole.
        values = ask_values(grants.secrets, run.asker)
        server.outcome.todo_later += keep_values(config, server.plan.name, values, run.asker, undo)
        undo.enter_context(file_restored_on_failure(path))
        make_configuration(path)
        prefix = prefix_of(proposal.report, config)
        append_entry(path, make_entry(grants, level, proposal.report.folder, prefix, resolved, config))
        server.tell_prefix(prefix)
        asyncio.run(proposal.accept())
    return proposal
