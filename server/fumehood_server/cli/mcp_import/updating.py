"""Import of a server that fumehood.toml names already: its plugin is written and pinned anew, its grants stay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from fumehood_server.cli.config_edit import grant_secrets
from fumehood_server.cli.mcp_import.configuration_place import configuration_at
from fumehood_server.cli.mcp_import.content import ResolvedServer
from fumehood_server.cli.mcp_import.first_start import build_and_start
from fumehood_server.cli.mcp_import.granting import granted_now, left_to_make, not_granted
from fumehood_server.cli.mcp_import.kept_secrets import (
    ask_values,
    check_secrets,
    keep_values,
    new_secrets,
    renew_values,
)
from fumehood_server.cli.mcp_import.missing_values import write_missing
from fumehood_server.cli.mcp_import.outcome import Status, now_of
from fumehood_server.cli.mcp_import.plan import PlannedSecret
from fumehood_server.cli.mcp_import.server_import import ServerImport
from fumehood_server.cli.mcp_import.undo import file_restored_on_failure, folder_restored_on_failure


def keep_unchanged(server: ServerImport) -> None:
    """Nothing has changed, but perhaps what the configuration says of a secret's value, or whether it has a file.

    Raises:
        OSError: a secret's file can't be read or written.
    """
    outcome = server.outcome
    outcome.status, outcome.now = Status.UNCHANGED, now_of(server.plan, server.granted)
    with contextlib.ExitStack() as undo:
        missing = write_missing(server, undo)
        outcome.notes += renew_values(server.config, server.plan.name, server.held, server.run.asker, undo)
    outcome.todo_later += left_to_make(server.plan, server.granted)
    server.tell_left_out(server.lacking)
    missing.tell(outcome)


def update(server: ServerImport, resolved: ResolvedServer, asked: Sequence[PlannedSecret]) -> None:
    """Write, build and pin it anew. Its entry stays as it is, with the secrets more that were `asked` for.

    Where it fails, its folder, fumehood.toml and the secrets are as they were.

    Raises:
        NotImportableError: the server doesn't start, or a secret can't be granted.
        ConfigError: fumehood.toml is not valid, or would not be.
    """
    run, outcome, folder, name = server.run, server.outcome, server.folder, server.plan.name
    left_out = [each for each in server.lacking if each not in asked]
    resolved = resolved.without_secrets(left_out)
    with contextlib.ExitStack() as undo:
        undo.enter_context(folder_restored_on_failure(folder))
        undo.enter_context(file_restored_on_failure(server.path))
        config = configuration_at(server.path)
        check_secrets(config, folder, asked, asks=run.asker.asks)
        missing = write_missing(server, undo)
        outcome.notes += renew_values(config, name, server.held, run.asker, undo)
        resolved.content.write(folder)
        if asked:
            outcome.todo_later += keep_values(config, name, ask_values(asked, run.asker), run.asker, undo)
            grant_secrets(server.path, folder, [each.name for each in asked], new_secrets(config, asked))
        config = configuration_at(server.path)
        proposal = build_and_start(server, config, resolved)
        asyncio.run(proposal.accept())
    granted = granted_now(config, folder) or {}
    outcome.notes += not_granted(server.plan, granted)
    outcome.todo_later += left_to_make(server.plan, granted)
    server.tell_granted(proposal.report, granted)
    server.tell_left_out(left_out)
    outcome.status = Status.UPDATED
    missing.tell(outcome)
