"""Imports one server: resolves it, writes and builds its plugin, asks for grants, adds it to fumehood.toml, pins it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fumehood_sandbox import Level

from fumehood_server.cli.config_edit import append_entry
from fumehood_server.cli.configured import configuration, configured_plugins
from fumehood_server.cli.failure import CommandError
from fumehood_server.cli.folder_check import propose_folder_pin
from fumehood_server.cli.mcp_import.asking import Narrowest
from fumehood_server.cli.mcp_import.content import ResolvedServer, resolve_server
from fumehood_server.cli.mcp_import.granting import (
    AskedGrants,
    ask_grants,
    granted_now,
    lacking,
    make_entry,
    prefix_of,
    secret_file,
    write_secret,
)
from fumehood_server.cli.mcp_import.import_settings import MAX_PROBLEM, Import
from fumehood_server.cli.mcp_import.launchers import NotImportableError
from fumehood_server.cli.mcp_import.outcome import Outcome, Status, now_of, planned_now
from fumehood_server.cli.mcp_import.plan import ServerPlan
from fumehood_server.cli.mcp_import.plugin_folder import FolderState
from fumehood_server.cli.mcp_import.remote_import import import_remote
from fumehood_server.cli.plugin_builds import build_for, manifest_in
from fumehood_server.config import SidecarConfig
from fumehood_server.errors import ConfigError
from fumehood_server.plugins import PinProposal


def import_server(plan: ServerPlan, run: Import) -> Outcome:
    """Import one server. What it can't do is in the outcome, so that the others go on."""
    outcome = Outcome(server=plan.entry.name, plugin=plan.name, notes=list(plan.notes))
    try:
        _import(plan, run, outcome)
    except NotImportableError as error:
        outcome.refuse(error.code, error.reason, error.todo)
    except CommandError as error:
        outcome.fail(error.code.lower(), error.what[-MAX_PROBLEM:], error.todo)
    except ConfigError as error:
        outcome.fail("config_invalid", f"{error.path}: {error.problem}", error.hint)
    except OSError as error:
        outcome.fail("system_error", f"{error.filename or ''}: {error.strerror or error}", "Look at the folder.")
    return outcome


def _import(plan: ServerPlan, run: Import, outcome: Outcome) -> None:
    path, config = configuration(run.config_path)
    folder = ((run.into or path.parent / "mcp") / plan.name).resolve()
    outcome.folder = folder
    _check_name(plan.name, folder, config)
    granted = granted_now(config, folder)
    if run.dry_run and not folder.exists():
        outcome.status = Status.PLANNED
        outcome.now = planned_now(plan, ask_grants(plan, Narrowest()))
        return
    resolved = resolve_server(plan, run.host, None if run.upgrade else folder, run.say)
    outcome.installs = resolved.what
    outcome.notes += resolved.notes
    if plan.remote is not None and any("=" in each for each in resolved.build_private):  # by its name
        plan = replace(plan, hosts=(replace(plan.hosts[0], private=resolved.build_private),))
    state = resolved.content.state_of(folder)
    _check_state(state, folder, outcome, resolved)
    if state is FolderState.SAME and granted is not None:
        outcome.status, outcome.now = Status.UNCHANGED, now_of(plan, granted)
        return
    if run.dry_run:
        outcome.status = Status.PLANNED
        outcome.now = now_of(plan, granted) if granted else planned_now(plan, ask_grants(plan, Narrowest()))
        return
    if not run.asker.agrees(_question(plan, resolved, outcome)):
        outcome.status = Status.DECLINED
        return
    grants = AskedGrants() if granted else ask_grants(plan, run.asker)
    with _undone_on_failure(folder, lambda: granted_now(configuration(run.config_path)[1], folder) is not None):
        resolved.content.write(folder)
        if plan.remote is not None and granted is None:
            proposal = import_remote(
                plan, grants, path=path, folder=folder, resolved=resolved, run=run, outcome=outcome
            )
            outcome.now = now_of(plan, granted_now(configuration(run.config_path)[1], folder) or {})
            outcome.tell_tools(proposal.report, Level.EXTERNAL)
            outcome.status = Status.IMPORTED
            return
        proposal = _built(folder, config, resolved, run)
        if granted is None:
            outcome.now = _granted(plan, grants, path, proposal, resolved, run, outcome)
        else:
            outcome.now = now_of(plan, granted)
            outcome.notes += lacking(plan, granted)
        asyncio.run(proposal.accept())
    outcome.tell_tools(proposal.report, Level(str(outcome.now["max_side_effects"])))
    outcome.status = Status.IMPORTED if granted is None else Status.UPDATED


@contextlib.contextmanager
def _undone_on_failure(folder: Path, is_named: Callable[[], bool]) -> Iterator[None]:
    """Put the folder back as it was, or remove it, if what is done to it fails and no configuration names it newly."""
    was_there = folder.exists()
    with tempfile.TemporaryDirectory(prefix="fumehood-import-") as name:
        old = Path(name) / "old"
        if was_there:
            shutil.copytree(folder, old, symlinks=True)
        try:
            yield
        except BaseException:
            if was_there:
                shutil.rmtree(folder)
                shutil.copytree(old, folder, symlinks=True)
            elif not is_named():
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _check_name(name: str, folder: Path, config: SidecarConfig) -> None:
    for each in configured_plugins(config):
        if each.name == name and each.config.path != folder:
            what = f"{config.path} has a plugin {name} already, in {each.config.path}"
            raise NotImportableError("name_taken", what, "Rename the server in its host's configuration.")


def _check_state(state: FolderState, folder: Path, outcome: Outcome, resolved: ResolvedServer) -> None:
    if state is FolderState.FOREIGN:
        todo = "Give --into FOLDER, or move what is there."
        raise NotImportableError("exists", f"{folder} is there, and no import has written it", todo)
    if state in {FolderState.CHANGED, FolderState.BY_HAND}:
        outcome.diff = resolved.content.diff(folder)
    if state is FolderState.BY_HAND:
        what = f"{folder}/plugin.toml was changed by hand since it was imported"
        raise NotImportableError(
            "changed_by_hand", what, "Take what you want of the differences, or remove the folder."
        )


def _question(plan: ServerPlan, resolved: ResolvedServer, outcome: Outcome) -> str:
    if outcome.diff:
        return f"{outcome.diff}\n{plan.name}: take these changes?"
    if plan.remote is not None:
        return f"{plan.name}: the server {plan.entry.name} at {plan.remote.server.url}. Import it?"
    does = f" It installs {resolved.what}." if resolved.what else ""
    return f"{plan.name}: `{plan.entry.command}` of {plan.entry.name}.{does} Import it?"


def _built(folder: Path, config: SidecarConfig, resolved: ResolvedServer, run: Import) -> PinProposal:
    """Install it, and start it in its sandbox to be told its tools.

    Raises:
        NotImportableError: it doesn't start, or its tools can't be taken.
    """
    build_for(manifest_in(folder), config, hosts=resolved.build_hosts, private=resolved.build_private, quiet=run.quiet)
    run.say("starting it in a sandbox, to be told its tools")
    lines: list[str] = []
    proposal = propose_folder_pin(folder, config, lambda line: lines.append(line.message))
    if proposal.report.loaded is None:
        said = [each.problem for each in proposal.report.faults] or [each.message for each in proposal.report.problems]
        what = "\n".join((*said[:4], *lines[-6:]))[-MAX_PROBLEM:]
        raise NotImportableError("not_started", what, f"`fumehood plugin check {folder}` says more.")
    return proposal


def _granted(
    plan: ServerPlan,
    grants: AskedGrants,
    path: Path,
    proposal: PinProposal,
    resolved: ResolvedServer,
    run: Import,
    outcome: Outcome,
) -> dict[str, object]:
    """Write the grants. Secrets' files first: the configuration that names them is loaded as a whole."""
    _, config = configuration(run.config_path)
    counts = Counter(tool.side_effects for tool in proposal.report.tools)
    level = run.asker.level(plan.name, {each: counts[each] for each in Level})
    for secret in grants.secrets:
        value = secret.value
        if value is None and not secret.environment:
            value = run.asker.value(secret)
        if value:
            said = write_secret(config, secret, value)
            outcome.notes += [said] if said else []
        elif not secret.environment:
            outcome.todo_later.append(f"write the value of {secret.variable} to {secret_file(config, secret.name)}")
            outcome.todo_later.append(f"chmod 600 {secret_file(config, secret.name)}")
    prefix = prefix_of(proposal.report, config)
    entry = make_entry(grants, level, proposal.report.folder, prefix, resolved, config)
    append_entry(path, entry)
    if entry.prefix:
        outcome.notes.append(f"its tools' names begin with {entry.prefix}: another plugin has a tool of one name")
    _, changed = configuration(run.config_path)
    return now_of(plan, granted_now(changed, proposal.report.folder) or {})
